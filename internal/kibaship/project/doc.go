// Package project creates, repairs and deletes KibaShip Projects.
//
// A reconciliation has these steps:
//
//	observe (observe.go)     all reads, into one Observed
//	check   (checks.go, rules)  pure: which problems there are
//	plan    (plan.go)        pure: every object that a Project consists of
//	apply   (controller.go, kit/apply)  the only writes of children
//	status  (status.go)      pure: phase, conditions and usage
//	patch   (controller.go)  the only write of the status
//
// A Project that is being deleted goes through finalize.go instead. Builders are in files named
// after the objects they build.
//
//	inputs.go    all that a plan depends on, and by what an object is known as the Project's
//	access.go    the rights in the namespace
//	bounds.go    bindings and policies that go beyond the bounds
//	extra.go     rules that an administrator adds to bounded Projects
//	grant.go     waits until the API server knows a new binding
//	policies.go  the admission policies without which no rights are given
//	tekton.go    the objects in the namespace of Tekton
//	watches.go   which events enqueue which Projects
//	namespace.go, limits.go     the namespace, its quota and its limits
//	observed.go, reconciler.go  what a reconciliation has read and done, and the dependencies
//	events.go, metrics.go       events and metrics
//
// # What holds
//
// The operator writes into a namespace only after it has found its UID in the status of the Project, or the token that it has
// drawn for it. Names, labels and annotations alone show nothing: any user who may create namespaces can set them.
//
// Rights are given only while the admission policies that limit them are in force. They are written in one order: the operator's
// own binding, the account and its Role, then the account's binding, and the limits. A deletion takes them off in the opposite
// direction: first the account's rights, then the namespace.
//
// # After a kill
//
// Each write can be repeated. The hash of the token is in the status before the namespace is created, so a namespace
// whose creation was not recorded is recognised by the token that it carries.
package project
