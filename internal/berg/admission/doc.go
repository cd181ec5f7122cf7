// Package admission decides which ChallengeInstances may start. It is pure: it gets all instances as they are, and returns
// a decision about each instance that was not started. A started instance stays started: a limit that is lowered ends no
// instance.
//
//	admission.go  the decision: owners, then prepared instances and limits, in the order of creation
//	pool.go       the prepared instances: which one an instance takes over, and which end
//	limits.go     the limits in the order in which they are checked
//	instance.go   what a decision is about
//
// An instance that has started counts from the write of status.instanceId, which comes before its first object, until its
// finalizer is removed, which comes after its namespace is gone.
//
// # What holds
//
// Nothing is promised in memory or in a status. A start is the write of status.instanceId, so a limit counts all instances that
// run, also of a time before the limit was set, and a kill between two writes loses nothing. A round that was wrong about one
// instance is corrected by the next one, except for a start: therefore the list must show all earlier starts (admitter.synced of
// package challengeinstance).
//
// The order depends on times of creation and UIDs, which no user chooses. So a user gains no slot by the name of an instance, and
// two replicas decide alike.
//
// Decide gets all instances of the cluster in each round, so it is linear in their number. It sorts only instances that wait. See
// docs/adr/0032-one-admission.md.
package admission
