// Package proxy has both ends of a tunnel: RunClient in the container network, RunServer on the
// host. docs/tunnel/proxy.md tells who dials whom, and what both promise.
//
//	client.go    listens for clients, tells the server proxy of them, joins them with data connections
//	server.go    dials servers and data connections, and joins these
//	session.go   the control connection that both live by
//	tunnels.go   the tunnels of a client proxy, and what went through them
//	pending.go   streams that wait for their data connection: ids, tokens, deadlines
//	newcomers.go connections of whoever has proved nothing yet
//	wire.go      TLS with few system calls, and without buffers while nothing comes
//	relay.go     both directions of a stream, to the end of each
package proxy
