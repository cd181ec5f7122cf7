// Package evening is a page for organisers: what runs on the evening of an event, and why the rest does not. It only reads, and it
// reads watches; of the API server it reads one record of an instance that has ended, when its page is opened.
//
//	row.go         what the page knows of an instance: it has no field for a flag
//	board.go       all instances as they are now, and what changed since
//	challenges.go  what is known of each Challenge: its images, its last check, what its instances need
//	summary.go     counts, the queue and the times to Running
//	capacity.go    what there is room for, and the forecast of kubectl berg plan
//	history.go     the last day as small plots
//	events.go      the last events of each instance, bounded
//	timeline.go    the life of one instance, and the lines of the plugin that help
//	records.go     instances that have ended
//	door.go        the pages and their streams
package evening
