// Package view says what an event looks like: why an instance does not run, what helps, how far its start is, which nodes take instances,
// and how much capacity is left. The plugin, the live page, the platform endpoints and the operator decide nothing of this themselves: the
// page draws rows, the plugin draws text, the endpoints draw JSON. It is pure.
//
//	cause.go     what each Cause means, for players and for organisers
//	reason.go    which Cause each Reason of a condition has, and what to do about it
//	stages.go    the stages of a start
//	nodes.go     which nodes take instances
//	instance.go  one instance: its state, its cause, its addresses, its end
//	challenge.go one Challenge, and what its instances need
//	capacity.go  what a cluster has for instances, and what is left
//	event.go     all instances of an event: counts, queue, times
package view
