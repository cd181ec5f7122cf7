// Package rctf is the endpoint for rCTF: its provider instancers/docker, which is an HTTP client.
//
// All calls go to one path and differ by their method. The token is in the body. rCTF makes the flag of each team and
// checks it, and asks for the status every 2 s while an instance starts or stops, so no answer waits.
package rctf

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

// Endpoint serves the calls.
type Endpoint struct {
	Store *instances.Store
	Clock interface{ Now() time.Time }
	Log   *slog.Logger
}

const route = "/v1/instances/"

// Routes implements web.Endpoint.
func (d *Endpoint) Routes(mux *http.ServeMux) {
	calls := map[string]web.Call{}
	for method, call := range map[string]func(*http.Request, request, instances.Registration) (details, error){
		http.MethodPut: d.start, http.MethodPost: d.status, http.MethodPatch: d.extend, http.MethodDelete: d.stop,
	} {
		calls[method+" "+route+"{$}"] = func(w http.ResponseWriter, r *http.Request) error {
			answer, err := d.serve(w, r, call)
			if err == nil {
				web.Write(w, http.StatusOK, answer)
			}
			return err
		}
	}
	web.Handle(mux, d.Log, func(w http.ResponseWriter, f web.Failure, _ error) { d.Fail(w, f) }, calls)
}

// Owns implements web.Endpoint.
func (d *Endpoint) Owns(path string) bool { return path == route }

// Fail implements web.Endpoint. rCTF shows the message to the team, so it is the one for players; the log has the other one.
func (d *Endpoint) Fail(w http.ResponseWriter, p web.Failure) {
	web.Write(w, p.Status, map[string]string{"kind": "instancerError", "message": p.ForPlayers()})
}

// Token implements web.Endpoint. It reads the whole body to find the token, and returns a request whose body can be
// read again.
func (d *Endpoint) Token(w http.ResponseWriter, r *http.Request) (string, *http.Request, error) {
	data, err := web.Body(w, r)
	if err != nil {
		return "", r, err
	}
	received := r.Clone(r.Context())
	received.Body = io.NopCloser(bytes.NewReader(data))
	var body struct {
		Token string `json:"rctfAuthToken"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return "", r, instances.Fail(instances.Invalid, "the body must be a JSON object with rctfAuthToken")
	}
	return body.Token, received, nil
}

// request is the body of a call of rCTF.
type request struct {
	TeamID    string `json:"teamId"`
	Challenge string `json:"challengeIntegrationId"`
	Flags     []struct {
		Provider string `json:"provider"`
		Flag     string `json:"flag"`
	} `json:"flags"`
	TimeoutMilliseconds *int64 `json:"timeoutMilliseconds"`
}

// details is the answer to each call.
type details struct {
	Kind                 string     `json:"kind"`
	Status               string     `json:"status"`
	TimeLeftMilliseconds *int64     `json:"timeLeftMilliseconds"`
	Endpoints            []endpoint `json:"endpoints"`
}

type endpoint struct {
	Kind         string `json:"kind"`
	Host         string `json:"host"`
	Port         int32  `json:"port"`
	Title        string `json:"title"`
	Text         string `json:"text"`
	BypassExpose bool   `json:"bypassExpose"`
}

// serve validates a request and calls call. rCTF registers nothing, so the first request for a Challenge creates the
// registration.
func (d *Endpoint) serve(w http.ResponseWriter, r *http.Request, call func(*http.Request, request, instances.Registration) (details, error)) (details, error) {
	var q request
	if err := web.Read(w, r, &q); err != nil {
		return details{}, err
	}
	if err := instances.CheckSource(q.TeamID); err != nil {
		return details{}, instances.Fail(instances.Invalid, "teamId: must be the UUID of a team")
	}
	if q.Challenge == "" || len(q.Challenge) > instances.MaxID {
		return details{}, instances.Fail(instances.Invalid, "challengeIntegrationId: must be the name of a Challenge, of at most %d bytes", instances.MaxID)
	}
	if q.TimeoutMilliseconds != nil && (*q.TimeoutMilliseconds <= 0 || *q.TimeoutMilliseconds > web.MaxTimeout.Milliseconds()) {
		return details{}, instances.Fail(instances.Invalid, "timeoutMilliseconds: must be from 1 to %d", web.MaxTimeout.Milliseconds())
	}
	registration, err := d.Store.Ensure(r.Context(), web.GrantFrom(r.Context()), q.Challenge)
	if err != nil {
		return details{}, err
	}
	return call(r, q, registration)
}

// timeout is 0 for the operator's default, and else at least a second, the smallest that an instance has.
func (q request) timeout() time.Duration {
	if q.TimeoutMilliseconds == nil {
		return 0
	}
	return max(time.Duration(*q.TimeoutMilliseconds)*time.Millisecond, time.Second)
}

// start does not wait for the instance: rCTF asks for the status.
func (d *Endpoint) start(r *http.Request, q request, registration instances.Registration) (details, error) {
	want := instances.Start{Timeout: q.timeout()}
	if len(q.Flags) > 0 {
		want.Flag = q.Flags[0].Flag
	}
	i, _, err := d.Store.Boot(r.Context(), registration, q.TeamID, want)
	if err != nil {
		return details{}, err
	}
	return d.shown(i), nil
}

// status returns the state of the team's instance. An instance is running for rCTF only when its addresses accept
// connections, so that players do not get an address that refuses them.
func (d *Endpoint) status(r *http.Request, q request, registration instances.Registration) (details, error) {
	i, err := d.Store.Instance(r.Context(), registration, q.TeamID)
	if instances.Is(err, instances.NotFound) {
		ends, err := d.Store.Stopping(r.Context(), registration, q.TeamID)
		if err != nil {
			return details{}, err
		}
		if ends {
			return details{Kind: kind, Status: stopping}, nil
		}
		return details{Kind: kind, Status: stopped}, nil
	}
	if err != nil {
		return details{}, err
	}
	if i.Limited { // WaitRunning refuses an instance that waits for the budget of its team
		if i, err = d.Store.WaitRunning(r.Context(), registration, i, instances.Settle+time.Second); err != nil {
			return details{}, err
		}
	}
	return d.shown(i), nil
}

// extend sets the end from now on, and not from the old end, so a repeated request adds nothing.
func (d *Endpoint) extend(r *http.Request, q request, registration instances.Registration) (details, error) {
	if q.TimeoutMilliseconds == nil {
		return details{}, instances.Fail(instances.Invalid, "timeoutMilliseconds: is missing")
	}
	i, err := d.Store.Renew(r.Context(), registration, q.TeamID, q.timeout())
	if err != nil {
		return details{}, err
	}
	return d.shown(i), nil
}

// A team that has no instance gets the same answer as after a stop.
func (d *Endpoint) stop(r *http.Request, q request, registration instances.Registration) (details, error) {
	err := d.Store.End(r.Context(), registration, q.TeamID)
	switch {
	case instances.Is(err, instances.NotFound):
		return details{Kind: kind, Status: stopped}, nil
	case err != nil:
		return details{}, err
	}
	return details{Kind: kind, Status: stopping}, nil
}

const (
	kind = "instancerInstanceDetails"
	// The states in rCTF's words, in addition to states.
	stopped  = "stopped"
	stopping = "stopping"
	errored  = "errored"
)

// states has rCTF's word for each state.
var states = map[view.State]string{
	view.Starting: "starting", view.Waiting: "starting", view.Running: "running", view.Failed: errored, view.Ending: stopping,
}

// shown has addresses only while the instance runs. A sentence in their place says why it does not.
func (d *Endpoint) shown(i instances.Instance) details {
	answer := details{Kind: kind, Status: states[i.State]}
	if i.NeedsPerson {
		answer.Status = errored
	}
	if !i.Until.IsZero() {
		left := max(i.Until.Sub(d.Clock.Now()).Milliseconds(), 0)
		answer.TimeLeftMilliseconds = &left
	}
	switch {
	case i.Stuck:
		answer.Endpoints = append(answer.Endpoints, text("status", i.Reason))
	case i.Connection != "" && i.State == view.Running:
		answer.Endpoints = append(answer.Endpoints, text("connection", i.Connection))
	}
	for _, e := range i.Endpoints {
		answer.Endpoints = append(answer.Endpoints, shownEndpoint(e))
	}
	return answer
}

// text is a line that rCTF shows to players as it is.
func text(title, line string) endpoint {
	return endpoint{Kind: "raw", Title: title, Text: line, BypassExpose: true}
}

// shownEndpoint is an address as rCTF shows it to players.
func shownEndpoint(e bergv1.ServiceEndpoint) endpoint {
	shown := endpoint{Kind: "tcp", Host: e.Hostname, Port: e.Port, Title: e.Name, Text: e.URL, BypassExpose: true}
	switch {
	case e.Protocol == "UDP":
		shown.Kind = "raw"
	case strings.HasPrefix(e.URL, "https://"):
		shown.Kind = "https"
	case strings.HasPrefix(e.URL, "http://"):
		shown.Kind = "http"
	case e.TLS:
		shown.Kind = "tcp-ssl"
	}
	return shown
}
