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
package frontend
