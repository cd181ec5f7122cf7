// Package challenge makes, watches and ends HexaCTF challenges.
//
// A reconciliation of a live challenge goes one way:
//
//	observe (observe.go)     all reads, into one Observed
//	check   (checks.go, validate.go)  pure: what stands in the way
//	start   (start.go)       what it is built from is written into its status, before the first object
//	plan    (plan.go)        pure: every object that a challenge consists of
//	apply   (build.go, kit/apply)    the only writes of children
//	derive  (status.go, messages.go) pure: state, conditions, and the messages that tell of them
//	patch   (controller.go)  the only write of the status
//
// Builders stand in files named after the object they build. Four controllers share the work,
// each with workers of its own, so that none waits for what another one waits for:
//
//	challenge           makes and repairs live challenges (controller.go)
//	challenge-expiry    ends those whose time is over (expiry.go)
//	challenge-deletion  tells of an end, and lets go (finalize.go)
//	challenge-messages  sends what the outboxes hold (sender.go)
//
// A message is recorded in the status by the patch that changes the state, sent by the sender,
// and taken out of the status by a later patch. Whoever is killed in between sends it once
// more, the same to the byte.
package challenge
