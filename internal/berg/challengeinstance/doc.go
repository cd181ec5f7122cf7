// Package challengeinstance builds, watches and terminates ChallengeInstances.
//
// A reconciliation has these steps:
//
//	observe (observe.go)  all reads, into one Observed
//	judge   (judge.go)    pure: may this instance be built, and if not, why
//	plan    (plan.go)     pure: every object it should consist of
//	apply   (controller.go, kit/apply)  the only writes of children
//	derive  (status.go)   pure: phase, conditions and endpoints
//	patch   (controller.go)  the only write of the status
//
// Two more controllers terminate instances: one asks for the deletion of those that
// expire (expiry.go), one carries deletions out (finalize.go). Builders are in files
// named after the object they build.
package challengeinstance
