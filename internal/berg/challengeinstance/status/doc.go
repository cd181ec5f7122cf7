// Package status decides about one instance and computes its status. It checks the observations, and computes phase,
// conditions, cause and times from the outcome of a reconciliation. It has no client, no clock and no randomness.
//
//	observed.go     what decides: observations, and the outcome of a reconciliation
//	checks.go       why an instance cannot be built
//	admission.go    why it waits although it could be built
//	freeze.go       Challenges and instances that an organiser has frozen
//	problem.go      the error of a write as a problem of its step
//	identity.go     the values that an instance gets at its start and keeps
//	lifetime.go     when it expires, and when its start is too late
//	status.go       the status: phase, conditions, content and addresses
//	pods.go         whether the pods are ready, and why not
//	refusal.go      why the pods of a Deployment are not created
//	sandbox.go      why the runtime makes no sandbox
//	prepared.go     pods that are to look for a flag that came late
//	connect.go      the addresses to which the operator connects before the first Running
//	reachable.go    the way between players and the pods: Gateway, Services and routes
//	images.go       images that newer instances run under the same name
//	cause.go        the cause in one word, for players
//	starttimes.go   the stages of a start
//	terminating.go  the status of an instance that ends
//	trim.go         the fields of cached objects that all this reads
//
// # What holds
//
// An instance that was ready once does not leave Running because a pod restarts or a write is repeated: that shows in the
// condition Healthy. Its identity and the time at which it was first ready are written once.
//
// A status changes only with what it says. Texts leave out counters, positions and times that change by themselves, because each
// change is a write. No text has the flag.
package status
