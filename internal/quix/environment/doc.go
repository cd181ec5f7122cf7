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
// plan.go. A namespace that an older operator created is taken over by handover.go. The other files have the dependencies
// (reconciler.go), what a reconciliation has read and done (observed.go), which events enqueue which environments (watches.go), and
// the events (events.go).
//
// # What holds
//
// Nothing of another owner is changed or deleted. A namespace belongs to an environment when it has its labels and its UID, and
// the status names it: by its UID, or by the digest of a token that it carries. Labels and annotations alone can be copied. The
// platform gets rights only while the fence is in force, in a namespace that was checked, through a role that was checked.
//
// # After a kill
//
// The names and the digest of the token are in the status before the first object exists, so the next process finds what this
// one has created. Each write can be repeated. The memory has only the environments that were seen alive: see unconfirmed.
package environment
