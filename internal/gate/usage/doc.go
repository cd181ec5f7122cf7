// Package usage knows when players have used each route, and how much: times, open connections and bytes. It knows nothing of their
// content, and forgets a route that is deleted.
//
//	usage.go    the use of one route, and its connections to pods
//	recorder.go all routes, as metrics by challenge and as a list
package usage
