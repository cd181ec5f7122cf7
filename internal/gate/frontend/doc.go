// Package frontend accepts the connections of players, and sends them where the table of package routing says.
//
//	frontend.go  a frontend and its options
//	serve.go     the ports, and the life of a connection
//	conn.go      connections that are counted, recorded and replayed
//	queue.go     connections on their way to the HTTP server
//	limits.go    bounds in total, by address and by host
//	tls.go       the server name of a connection, before anything else of it is trusted
//	http.go      requests
//	stream.go    bytes within TLS
//	page.go      what players read when no pod answers
//	buffers.go   memory that answers and streams share
//	metrics.go   the open, refused and unanswered connections and requests
//
// # What a connection passes
//
//	total     the number of all connections, before a goroutine is started for it
//	address   the gate of package ports: number and time of connections that have not asked for anything that is served
//	name      the server name or the Host header must have a route
//	host      the number of requests and streams of a host, and of one address at it
//	rates     bytes and requests of an address, from here to the end
//
// A player is trusted as soon as a pod is about to be asked: until then its connection may end in favour of another one.
//
// No name, address or byte of a player is logged. Lines that clients can cause are dropped, and counted as metrics.
package frontend
