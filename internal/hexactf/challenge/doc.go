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
// The files behind these steps:
//
//	definition.go, inputs.go  what a challenge was started with, and the names that follow from it
//	rights.go                 fields of containers that only an administrator may use
//	conflict.go               objects in the way, and objects that a deletion with --cascade=orphan left
//	stop.go                   the end of the pods of an isolated challenge
//	messages.go               the outbox in the status
//	deliveries.go             what the broker has, before the status says so
//	endings.go                the messages about challenges that are gone
//	watches.go                which events enqueue which challenges
//	events.go, metrics.go, resourcestatus.go  events and metrics
//	reconciler.go, observed.go  the dependencies, and what a reconciliation has read
//
// # What holds
//
// No pod of an isolated challenge is started without its network policies: they are the first objects, are put back while pods are
// left, and go after the last pod. A challenge is built only from its snapshot, so a change of its definition or of the settings
// does not reach a game that runs. A state does not go back from Running until the deletion.
//
// The messages of a challenge are sent one at a time, in the order of their sequence numbers. The message Deleted is sent when
// the name is free, and before the first message of the next challenge of that name.
//
// # Messages and a kill
//
// The patch that changes the state also records a message in the status. The sender sends the message, and a later patch
// removes it from the status. An operator that is killed in between sends the message once more, with the same bytes.
package challenge
