// Package status writes the statuses of GatewayClasses, Gateways and routes. The leader of the replicas writes.
// Nothing waits for it: connections are served from the tables.
package status
