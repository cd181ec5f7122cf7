// Package evening is a page for organisers: what runs on the evening of an event, and why the rest does not. It only reads, and it only
// reads one watch cache.
//
//	row.go        what the page knows of an instance: it has no field for a flag
//	board.go      all instances as they are now, and what changed since
//	summary.go    counts, the queue and the times to Running
//	history.go    the last day as small plots
//	door.go       the page, its stream, and the page of one instance
package evening
