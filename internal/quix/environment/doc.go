// Package environment creates, repairs and deletes Quix environments.
//
// A reconciliation has these steps:
//
//	observe (observe.go)     all reads, into one Observed
//	check   (checks.go, clusterrole.go)  pure: which problems there are
//	plan    (plan.go)        pure: every object that an environment consists of
//	apply   (controller.go, kit/apply)  the only writes of children
//	derive  (status.go)      pure: phase, conditions and the status of each object
//	patch   (controller.go)  the only write of the status
//
// An environment that is being deleted goes through finalize.go instead.
// Builders are in files named after the object they build.
package environment
