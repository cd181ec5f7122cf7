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
package admission
