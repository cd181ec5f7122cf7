// Package source makes a clone fit for the builder. It is a program that runs in the pod of a build, in a step of its own, between
// the step that clones and the step that builds: what it runs is the operator's, and never an author's.
//
//	prepare.go     the program and its results
//	files.go       owner, modes and times of files, as Docker has them
//	dockerfile.go  what the builder does not do, and would skip in silence
package source
