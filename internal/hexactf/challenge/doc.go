// Package challenge creates, repairs and deletes HexaCTF challenges.
//
// A reconciliation of a live challenge has these steps:
//
//	observe (observe.go)                all reads, into one Observed
//	check   (checks.go, validate.go)    pure: which problems there are
//	start   (start.go)                  the inputs of the challenge are written into its status, before the first object exists
//	plan    (plan.go)                   pure: every object that a challenge consists of
//	apply   (build.go, kit/apply)       the only writes of children
//	status  (status.go, messages.go)    pure: state, conditions, and the messages about them
//	patch   (controller.go)             the only write of the status
//
// A challenge that is being deleted goes through finalize.go instead. Builders are in files named after the object they
// build. Three controllers share the work, each with its own workers:
//
//	challenge           creates, repairs and finalizes challenges (controller.go)
//	challenge-expiry    deletes expired challenges (expiry.go)
//	challenge-messages  sends the messages of the outboxes (sender.go)
//
// The patch that changes the state also records a message in the status. The sender sends the message, and a later patch
// removes it from the status. An operator that is killed in between sends the message once more, with the same bytes.
package challenge
