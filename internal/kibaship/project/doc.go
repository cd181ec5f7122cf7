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
package project
