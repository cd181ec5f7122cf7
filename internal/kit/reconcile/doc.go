// Package reconcile is the frame of the reconciliations of every Kind.
//
//	kind.go       a reconciliation from the read to the status: the code that every Kind shares
//	reconcile.go  how a reconciler reaches the cluster, events, the time of the next reconciliation, and the metrics of a controller
//	drain.go      how it ends when the operator is asked to stop
//	status.go     how a status is written, and the conditions Ready and Stalled, which every Kind has
//	watches.go    which changes lead to a reconciliation, and of which resources
package reconcile
