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
package gate
