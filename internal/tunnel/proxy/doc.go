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
//	reach.go            whether the servers of tunnels answer
//	options.go          the options of both, and their defaults
//
// # The steps of a stream
//
//	acceptClients  client  takes a slot of the tunnel, then accepts: clients beyond the limit cost nothing
//	open           client  reports the stream with an ID and a random token
//	server.open    server  records the opening, and dials the server of the tunnel
//	dialData       server  takes an idle data connection or makes one, and sends ID and token on it
//	join           client  takes the opening whose token that is, and copies
//	streams.run    both    copies both directions, until each has ended
//	idlePool.put   server  keeps the data connection for the next stream
//
// # What holds
//
// The client proxy is not trusted: a container of its network may have taken it over. The server proxy dials only what a
// controller has asked for and its own rules allow, and takes nothing but IDs, ports and addresses for display from the other
// side.
//
// Exactly one goroutine gets an opening, by openings.take or authenticate. All others find none and do nothing, so a timeout, a
// failure, a deletion and a data connection may come together.
//
// A client or a server never takes a cut for a proper end: a stream that breaks ends with a reset at both sides.
//
// A data connection goes back to the pool only if both directions of its stream have ended with a frame that says so. Otherwise
// bytes of one stream could get into the next.
//
// No token is in a log line. Lines that peers without a certificate can cause are limited.
//
// # After a kill
//
// The control connection breaks, and the other proxy ends after PeerGrace: both start again as a pair, and a controller prepares
// the tunnels again. With Reconnect the other one stays and waits. Streams are lost in both cases, because their connections
// belonged to the process.
package proxy
