// Package rules decides whether a Challenge can be run, and finds parts that surprise its author. It is pure. The
// operator (condition Accepted, the start of an instance) and kubectl berg (lint, plan, import) share it.
//
//	validate.go  errors with which no instance of the Challenge can start
//	limits.go    how large a Challenge may be
//	files.go     where a file with the flag can be
//	amounts.go   CPU, memory and modes that their author cannot have meant
//	warnings.go  parts that start, and are probably a mistake
//	schema.go    errors that the API server finds, for users who have none at hand
//	references.go  names of images and capabilities
//	names.go     the names that are derived from names in a Challenge
//	connection.go  the author's text for players, and its placeholders
//	warm.go      Challenges whose instances can be prepared
package rules
