// Package status writes what the gate serves into the statuses of GatewayClasses, Gateways and routes. The leader of the replicas writes.
// Nothing waits for it: connections are served by what is watched.
package status
