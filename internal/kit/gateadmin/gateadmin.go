// Package gateadmin is what a replica of the gate answers at its admin port: to the operator, whether it serves a host, and to the live
// page and kubectl berg, how players use routes. It names no host that is not asked for.
package gateadmin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
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

const (
	maxServed = 1 << 10
	maxReport = 8 << 20
)

// AskServed asks a replica whether it serves a host.
func AskServed(ctx context.Context, client *http.Client, replica string, query url.Values) (got Served, err error) {
	return got, get(ctx, client, url.URL{Scheme: "http", Host: replica, Path: "/served", RawQuery: query.Encode()}, maxServed, &got)
}

// AskUsage asks a replica for the use of its routes after a time.
func AskUsage(ctx context.Context, client *http.Client, replica string, after time.Time) (got Report, err error) {
	query := url.Values{"after": {strconv.FormatInt(max(0, after.Unix()), 10)}}
	return got, get(ctx, client, url.URL{Scheme: "http", Host: replica, Path: "/usage", RawQuery: query.Encode()}, maxReport, &got)
}

// get decodes an answer. Errors do not name the host that was asked for: they are for logs and conditions.
func get(ctx context.Context, client *http.Client, from url.URL, limit int64, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return errors.New("its address is invalid")
	}
	answer, err := client.Do(req)
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err // without the address
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers with status %d", answer.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, limit)).Decode(into); err != nil {
		return errors.New("its answer is not JSON")
	}
	return nil
}
