// Package gateadmin is what a replica of the gate answers at its admin port: to the operator, whether it serves a host, and to the live
// page, how players use routes. It names no host that is not asked for.
package gateadmin

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

const (
	// Controller is the controllerName of the GatewayClass that the gate serves.
	Controller = "berg.norelect.ch/gate"
	// Name is the label app.kubernetes.io/name of the gate's objects.
	Name = "berg-gate"
	// Port is the name of the gate's admin port.
	Port = "admin"
)

// Served is the answer to GET /served?host=NAME: whether players reach a host through the replica.
type Served struct {
	// Host: a route of the host is served. Pod: a pod behind it accepted a connection, to which no byte was sent.
	Host bool `json:"host"`
	Pod  bool `json:"pod"`
}

// Report is the answer to GET /usage: the use of routes since the replica started. GET /usage?after=SECONDS answers with the routes that are
// new since a time, were used since, or are being used.
type Report struct {
	Since time.Time `json:"since"`
	Hosts []HostUse `json:"hosts"`
}

// HostUse is the use of one route, by its host.
type HostUse struct {
	ID string `json:"id"`
	// First and Last are zero for a route that players have not opened.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	// Open are requests and streams now, Bytes those in both directions.
	Open  int64 `json:"open"`
	Bytes int64 `json:"bytes"`
}

// ID identifies a host without naming it: names of instances are known to their players only.
func ID(host string) string {
	digest := sha256.Sum256([]byte(host))
	return hex.EncodeToString(digest[:16])
}
