// Package check makes ChallengeChecks: it has Challenges played by the programs of their
// authors, and reports whether they can be solved.
//
// A check goes one way. Every step can be read from the cluster again, so the operator that takes
// over from an operator that was killed continues where it stopped:
//
//	observe (observe.go)    all reads, into one Observed
//	due     (schedule.go)   pure: when the next check is to be made
//	order   (order.go)      pure: whether it may begin now, with respect to other checks and to players
//	start   (controller.go) the status says that a check is being made, before anything of it exists
//	check   (checks.go)      pure: what has come of it, or how long to wait
//	plan    (plan.go)       pure: the instance, then the solver's namespace and what is in it
//	derive  (status.go)     pure: results and conditions
//	end     (finalize.go)   takes away what belongs to the check
//
// Builders stand in files named after the object they build. One worker does it all: no two
// passes count at the same time how many checks are being made.
package check
