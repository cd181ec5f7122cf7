// Package gate is an implementation of the Gateway API for what instances need: host names, TLS, requests and bytes to pods.
//
// Each replica follows Gateways, routes, Services and EndpointSlices by watch, and serves a route as soon as it has seen it. One of them,
// the leader, writes the statuses.
//
//	routing   translates Gateways and routes into tables; pure
//	upstream  the pods behind Services, and connections to them
//	frontend  the connections of players
//	follow    keeps the tables like the cluster
//	usage     when players have used each route, and how much
//	status    writes the statuses
//
// Here are the parts of the process:
//
//	gate.go    the manager with all parts, and the ports
//	config.go  the settings
//	admin.go   what the operator and collectors of metrics may ask
//	lease.go   which replica writes statuses
//	off.go     a process that serves health alone
//
// # What holds
//
// No connection of a player waits for the API server. The tables are in memory and change by watch, so a replica serves the last known
// routes while the API server does not answer.
//
// A replica is ready only when it has seen all objects that existed at its start, and their certificates: else it would refuse the
// players of routes that it does not know yet.
//
// Only statuses are written, by one replica. Two replicas that write for a moment write the same, and versions refuse the older one.
//
// Tenants write Gateways and routes. Their number, size, labels and annotations are bounded in memory, and a Gateway of theirs takes no
// host from the Gateway of the instances or from an older one.
//
// # After a kill
//
// Open connections of the replica are lost, and clients connect to another one. Counters of usage begin at zero: readers know that by the
// time since when a replica counts.
package gate
