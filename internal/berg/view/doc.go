// Package view describes an event: why an instance does not run, which actions help, how far its start is, which nodes take
// instances, and how much capacity is left. The plugin, the live page, the platform endpoints and the operator do not
// decide any of this themselves: the page draws rows, the plugin draws text, the endpoints draw JSON. It is pure.
//
//	cause.go     explains each Cause to players and to organisers
//	reason.go    gives each Reason of a condition its Cause, and advice
//	stages.go    the stages of a start
//	nodes.go     selects the nodes that take instances
//	gateway.go   whether a Gateway serves a route
//	health.go    checks what endangers an event
//	instance.go  one instance: its state, its cause, its addresses, its end
//	challenge.go one Challenge, and the requirements of its instances
//	capacity.go  the capacity of a cluster for instances, used and free
//	event.go     all instances of an event: counts, queue, times
//	late.go      the times after which a start, a wait or an end is a problem
//	use.go       how players have used an instance
package view
