// Package rules decides whether a Challenge can be run, and what in it surprises its author. It is pure. The operator
// (condition Accepted, the start of an instance) and kubectl berg (lint, plan, import) share it.
//
//	validate.go  what no instance of the Challenge can start with
//	limits.go    how large a Challenge may be
//	files.go     where a file with the flag can be
//	amounts.go   CPU, memory and modes that mean something other than they say
//	warnings.go  what starts, and is probably a mistake
//	schema.go    what the API server refuses, for those who have none at hand
//	references.go  names of images and capabilities
//	names.go     the names that follow from those in a Challenge
package rules
