// Package source makes a clone fit for the builder. It is a program that runs in the pod of a build, in a step of its own, between
// the step that clones and the step that builds: what it runs is the operator's, and never an author's.
//
//	prepare.go     the program and its results
//	files.go       owner, modes and times of files, as Docker has them
//	dockerfile.go  the Dockerfile in the syntax of the builder, and what the builder would skip in silence
package source
