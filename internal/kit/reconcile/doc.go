// Package reconcile is the frame of the reconciliations of every Kind.
//
//	kind.go       a reconciliation from the read to the status: the code that every Kind shares
//	ready.go      the conditions Ready and Stalled, which every Kind has
//	reconcile.go  the duration of a reconciliation, the time of the next one, and the counters
//	drain.go      how it ends when the operator is asked to stop
//	status.go     how a status is written
//	events.go     how events are recorded
//	watches.go    which changes lead to a reconciliation, and of which resources
//	access.go     how a reconciler reaches the cluster
//	metrics.go    the metrics that every controller has
package reconcile
