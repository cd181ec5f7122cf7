// Package console writes the output of the program for people and scripts: colours on a terminal, columns that fit its
// width, a line of progress, and JSON or YAML for programs.
//
// Standard output has the result and nothing else. Progress, warnings and errors go to standard error.
//
//	console.go   the streams, questions, and results for programs
//	table.go     columns
//	progress.go  the line of progress
//	level.go     the severities of results
//	exit.go      exit codes, and errors that carry one
//
// Whether a stream is a terminal is found once, at the start. The width is read for each output, because a window may change. A
// text from the cluster, or from a file, goes through OneLine or StripControl before it is written: nothing here does that.
package console
