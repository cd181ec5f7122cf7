// Package follow keeps the table of package routing like the cluster: each event changes immediately what it concerns.
//
//	state.go         all known objects; it reads no cluster
//	changes.go       what a change of an object concerns
//	compile.go       the translations of Gateways and routes, and their place in the table
//	addresses.go     the address of each Gateway
//	watch.go         the watches that tell State of changes
//	certificates.go  the watches of Secrets, one for each that a Gateway names
//	metrics.go       the number of routes, and when certificates expire
//
// One lock protects all known objects, and each event is handled under it, translation included. Readers of the table do not need it: a
// translation becomes visible as a whole, by one call to the table.
//
// Events of different kinds come in any order: a route before its Gateway, a Gateway before its Secret. Each event translates all that
// refers to its object, so the last event of a group leaves the right result.
package follow
