// Package challengeinstance builds, watches and terminates ChallengeInstances.
//
// A reconciliation has these steps:
//
//	observe (observe.go)  all reads, into one Observed
//	check   (checks.go)    pure: may this instance be built, and if not, why
//	plan    (plan.go)     pure: every object it should consist of
//	apply   (controller.go, kit/apply)  the only writes of children
//	derive  (status.go)   pure: phase, conditions and endpoints
//	patch   (controller.go)  the only write of the status
//
// Builders are in files named after the object they build. Three more controllers end
// things: one asks for the deletion of instances that expire (expiry.go), one carries
// deletions out (finalize.go), one takes away namespaces whose instance is gone without them
// (orphans.go).
//
// What else an instance goes through:
//
//	turns.go       one instance of an owner after the other
//	queue.go       room for some instances only: who waits, and whom to look at when there is room
//	snapshot.go    the Challenge and the defaults that a live instance keeps
//	pullsecret.go  copies of the pull secret, and which of them a container uses
//	freeze.go      no new instance, and none expires
//	keep.go        what a record keeps of an instance is seen before its namespace goes
//	cause.go       the one word for players; starttimes.go: where the time of a start went
//	redact.go      no flag in what is told
package challengeinstance
