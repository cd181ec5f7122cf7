// Package livepage is the live page for organisers. It shows the instances of an event and explains why some do not
// run. It only reads, and reads from watches. Its one request to the API server reads the record of an instance that has
// ended, when the page of the record is opened.
//
//	row.go         an instance as the page shows it, without a field for a flag
//	board.go       the current state of all instances, and the changes since a version
//	challenges.go  the state of each Challenge: its images, its last check, the resources of its instances
//	problems.go    dangers for the event, and the instances that need a person by Challenge and cause
//	operator.go    whether the operator runs, and the settings that it runs with
//	summary.go     counts, the queue and the times to Running
//	capacity.go    the capacity for more instances, and the forecast of kubectl berg plan
//	history.go     the last day as small plots
//	events.go      the last events of each instance, bounded
//	usage.go       when players have used an instance, by the gate
//	timeline.go    the life of one instance, and the lines of the plugin that help
//	records.go     instances that have ended
//	endpoint.go    the pages and their streams
//	format.go      times as people read them
//
// # What holds
//
// Each change gets a version, a number that only grows. A stream sends changes that are newer than the version of its last event,
// so a slow client misses states between, and never the last one. Versions are of one replica: a client that comes to another one
// gets everything.
//
// A token sees the instances and records of its own namespace. No flag is on the page: the rows have no field for one, and
// events and records come from the operator without them.
package livepage
