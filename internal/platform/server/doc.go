// Package server runs the platform API: its endpoints behind tokens, limits and TLS, and its metrics.
//
//	config.go  the settings
//	server.go  the ports, the tokens, the way of a request, and the metrics
//	limits.go  requests per second, of all and of each source
//	drain.go   the end of a replica
//	off.go     the API while it is off
//
// # The way of a request
//
// The path says which endpoint a request is for. The endpoint finds its token, which must be valid for this endpoint. Until then the
// connection counts as one without a token, of which there are few, and it ends after the answer. Then come the limit of all requests,
// the body as a whole, and the call. The limit of a source is the Store's, for calls that write.
//
// # Stopping
//
// A replica that stops is not ready first, goes on for some seconds, then takes no new connection and gives the answers that it has
// begun. Its caches end last. Nothing is kept in memory that another replica would need.
package server
