// Package reconcile is the frame of one reconciliation of one custom
// resource: what happens before a room decides anything and after it has.
//
//	watches.go  which changes lead to a pass, and of which resources
//	pass.go     how long it took, when the next one is, and what is counted
//	drain.go    how it ends when the operator is asked to stop
//	status.go   how its result is written
//	events.go   how its result is told
//	metrics.go  the metrics that every controller has
package reconcile
