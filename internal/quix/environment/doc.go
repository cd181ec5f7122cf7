// Package environment creates, repairs and deletes Quix environments.
//
// A reconciliation of a live environment has these steps; kit/reconcile does the rest:
//
//	start   (start.go)                   the names are written into the status, before the first object
//	observe (observe.go)                 all reads, into one Observed
//	check   (checks.go, clusterrole.go)  pure: which problems there are
//	plan    (plan.go)                    pure: every object that an environment consists of
//	apply   (controller.go, kit/apply)   the only writes of children
//	status  (status.go)                  pure: phase, conditions and the status of each object
//
// An environment that is being deleted goes through finalize.go instead. Builders are in
// plan.go.
package environment
