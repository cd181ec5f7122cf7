// Package follow keeps the table of package routing like the cluster: each event changes what it concerns, at once.
//
//	state.go         all known objects; it reads no cluster
//	changes.go       what a change of an object concerns
//	compile.go       the translations of Gateways and routes, and their place in the table
//	addresses.go     the address of each Gateway
//	watch.go         the watches that tell State of changes
//	certificates.go  the watches of Secrets, one for each that a Gateway names
package follow
