// Package proxy has both ends of a tunnel: RunClient in the container network, RunServer on the host. docs/tunnel/proxy.md
// says which proxy opens which connection, and what both guarantee.
//
// Its data connections are made for speed: a tunnel must be faster than chisel, frp and ssh port forwarding. The means,
// batches of TLS records and polling, are in package dataconn behind two functions, Accept and Dial; idle data connections
// are kept for the next stream in idlepool.go.
//
//	client.go           listens for clients, reports them to the server proxy, joins them with data connections
//	server.go           dials servers and data connections, and joins them
//	session.go          the control connection, without which neither proxy runs for long
//	tunnels.go          the tunnels of a client proxy, and their counters
//	pending.go          streams that wait for their data connection: IDs, tokens, deadlines
//	streams.go          the streams that run: limits, idle timeout, drain
//	relay.go            both directions of a stream, to the end of each
//	idlepool.go         data connections that no stream uses
//	watch.go            whether a client that waits is still connected
package proxy
