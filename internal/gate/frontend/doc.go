// Package frontend accepts the connections of players, and sends them where the table of package routing says.
//
//	frontend.go  the ports, and the life of a connection
//	limits.go    bounds in total, by address and by host
//	tls.go       the server name of a connection, before anything else of it is trusted
//	http.go      requests
//	stream.go    bytes within TLS
//	page.go      what players read when no pod answers
package frontend
