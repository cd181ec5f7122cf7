// Package check makes ChallengeChecks: it has Challenges played by the programs of their
// authors, and reports whether they can be solved.
//
// A check goes one way. Every step can be read from the cluster again, so the operator that takes
// over from an operator that was killed continues where it stopped:
//
//	observe (observe.go)    all reads, into one Observed
//	due     (schedule.go)   pure: when the next check is to be made
//	order   (order.go)      pure: whether it may start now, with respect to other checks and to players
//	start   (controller.go) the status says that a check is being made, before its first object exists
//	check   (checks.go)      pure: its result, or how long to wait
//	plan    (plan.go)       pure: the instance, then the solver's namespace and the objects in it
//	derive  (status.go)     pure: results and conditions
//	end     (finalize.go)   deletes the objects of the check
//
// Builders stand in files named after the object they build. One worker does it all: no two
// reconciliations count the current checks at the same time.
package check
