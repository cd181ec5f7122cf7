// Package follow keeps the table of package routing like the cluster: each event changes what it concerns, at once.
//
//	state.go         what is known, and what a change of it recomputes; it reads no cluster
//	addresses.go     the address of each Gateway
//	watch.go         the watches that tell State of changes
//	certificates.go  the watches of Secrets, one for each that a Gateway names
package follow
