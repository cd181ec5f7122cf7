// Package ports bounds what clients cost a program before they have proven who they are, at every port of every program:
// the platform API, webhooks, metrics, probes, profiles, and the control and data ports of tunnels.
//
//	gate.go        connections of clients that are not trusted yet: number, time and bytes
//	handshakes.go  TLS handshakes that compute at the same time
//	server.go      HTTP behind a gate, with a deadline for each request
//	rates.go       requests of each address
package ports
