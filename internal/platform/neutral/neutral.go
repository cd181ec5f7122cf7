// Package neutral is the API's own endpoint, for future platforms and for scripts: version 1, described by
// openapi.json.
package neutral

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

// OpenAPI describes the endpoint, in OpenAPI 3.1.
//
//go:embed openapi.json
var OpenAPI []byte

// Endpoint serves the calls.
type Endpoint struct {
	Store *instances.Store
	// BootWait is the maximum time that a client may ask to wait for.
	BootWait time.Duration
	// Heartbeat is the interval of comments in a stream without events, so that proxies keep it. Default: 15s.
	Heartbeat time.Duration
	Log       *slog.Logger
}

// Routes implements web.Endpoint.
func (d *Endpoint) Routes(mux *http.ServeMux) {
	web.Handle(mux, d.Log, func(w http.ResponseWriter, f web.Failure, _ error) { d.Fail(w, f) }, map[string]web.Call{
		"GET /v1/challenges":                          d.challenges,
		"GET /v1/instances":                           d.list,
		"GET /v1/events":                              d.events,
		"PUT /v1/instances/{challenge}/{source}":      d.put,
		"GET /v1/instances/{challenge}/{source}":      d.get,
		"PATCH /v1/instances/{challenge}/{source}":    d.patch,
		"DELETE /v1/instances/{challenge}/{source}":   d.delete,
		"GET /v1/instances/{challenge}/{source}/flag": d.flag,
	})
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		web.Headers(w)
		_, _ = w.Write(OpenAPI) // the client is gone
	})
}

// Owns implements web.Endpoint. It excludes the one path under /v1 that belongs to rCTF.
func (d *Endpoint) Owns(path string) bool {
	return (path == "/v1" || strings.HasPrefix(path, "/v1/")) && path != "/v1/instances/"
}

// Token implements web.Endpoint.
func (d *Endpoint) Token(_ http.ResponseWriter, r *http.Request) (string, *http.Request, error) {
	return tokens.FromRequest(r), r, nil
}

// Fail implements web.Endpoint.
func (d *Endpoint) Fail(w http.ResponseWriter, p web.Failure) {
	web.Write(w, p.Status, map[string]string{"message": p.Message, "players": p.ForPlayers()})
}

func (d *Endpoint) challenges(w http.ResponseWriter, r *http.Request) error {
	names, err := d.Store.Challenges(r.Context(), web.Namespace(r))
	if err != nil {
		return err
	}
	web.Write(w, http.StatusOK, map[string][]string{"challenges": names})
	return nil
}

// list has the instances of all registrations of the token, of one source or of all.
func (d *Endpoint) list(w http.ResponseWriter, r *http.Request) error {
	source := r.URL.Query().Get("source")
	if source != "" {
		if err := instances.CheckSource(source); err != nil {
			return err
		}
	}
	all, err := d.Store.Sources(r.Context(), web.GrantFrom(r.Context()), source)
	if err != nil {
		return err
	}
	web.Write(w, http.StatusOK, map[string][]instances.Instance{"instances": all})
	return nil
}

// body is the body of PUT and PATCH.
type body struct {
	// Flag of the instance. Default: the API makes it.
	Flag string `json:"flag"`
	// TimeoutSeconds from now on. Default: the operator's.
	TimeoutSeconds int64 `json:"timeoutSeconds"`
	// WaitSeconds until it runs. Default: 0.
	WaitSeconds int64 `json:"waitSeconds"`
}

// read refuses a wait that is longer than BootWait.
func (d *Endpoint) read(w http.ResponseWriter, r *http.Request) (body, error) {
	var b body
	if err := web.Read(w, r, &b); err != nil {
		return b, err
	}
	switch {
	case b.TimeoutSeconds < 0 || b.TimeoutSeconds > int64(web.MaxTimeout/time.Second):
		return b, instances.Fail(instances.Invalid, "timeoutSeconds: must be from 0 to %d", int64(web.MaxTimeout/time.Second))
	case b.WaitSeconds < 0 || b.WaitSeconds > int64(d.BootWait/time.Second):
		return b, instances.Fail(instances.Invalid, "waitSeconds: must be from 0 to %d", int64(d.BootWait/time.Second))
	}
	return b, nil
}

// put starts an instance or joins its start, so that a client may repeat the request after a lost answer. The status
// says which: 201 for a new instance, 200 for an existing one. A body with another flag or timeout changes nothing of an instance
// that exists.
func (d *Endpoint) put(w http.ResponseWriter, r *http.Request) error {
	b, err := d.read(w, r)
	if err != nil {
		return err
	}
	registration, err := d.Store.Ensure(r.Context(), web.GrantFrom(r.Context()), r.PathValue("challenge"))
	if err != nil {
		return err
	}
	want := instances.Start{Flag: b.Flag, Timeout: time.Duration(b.TimeoutSeconds) * time.Second}
	i, started, err := d.Store.Boot(r.Context(), registration, r.PathValue("source"), want)
	if err != nil {
		return err
	}
	if b.WaitSeconds > 0 && (started || i.MayRunSoon() || i.State == view.Running) {
		if i, err = d.Store.WaitRunning(r.Context(), registration, i, time.Duration(b.WaitSeconds)*time.Second); err != nil {
			return err
		}
	}
	status := http.StatusOK
	if started {
		status = http.StatusCreated
	}
	web.Write(w, status, i)
	return nil
}

func (d *Endpoint) registration(r *http.Request) (instances.Registration, error) {
	return d.Store.Registration(r.Context(), web.GrantFrom(r.Context()), r.PathValue("challenge"))
}

func (d *Endpoint) instance(r *http.Request) (instances.Instance, error) {
	registration, err := d.registration(r)
	if err != nil {
		return instances.Instance{}, err
	}
	return d.Store.Instance(r.Context(), registration, r.PathValue("source"))
}

func (d *Endpoint) get(w http.ResponseWriter, r *http.Request) error {
	i, err := d.instance(r)
	if err != nil {
		return err
	}
	web.Write(w, http.StatusOK, i)
	return nil
}

// flag is a call of its own, so that no list and no log of answers has flags.
func (d *Endpoint) flag(w http.ResponseWriter, r *http.Request) error {
	i, err := d.instance(r)
	if err != nil {
		return err
	}
	flags := i.Flags
	if flags == nil {
		flags = []string{}
	}
	web.Write(w, http.StatusOK, map[string][]string{"flags": flags})
	return nil
}

// patch sets the end from now on, so a client may repeat the request after a lost answer.
func (d *Endpoint) patch(w http.ResponseWriter, r *http.Request) error {
	b, err := d.read(w, r)
	if err != nil {
		return err
	}
	if b.TimeoutSeconds == 0 {
		return instances.Fail(instances.Invalid, "timeoutSeconds: is missing; how long the instance lives from now on")
	}
	registration, err := d.registration(r)
	if err != nil {
		return err
	}
	i, err := d.Store.Renew(r.Context(), registration, r.PathValue("source"), time.Duration(b.TimeoutSeconds)*time.Second)
	if err != nil {
		return err
	}
	web.Write(w, http.StatusOK, i)
	return nil
}

// delete is an error for an instance that does not exist, also for a repeated request.
func (d *Endpoint) delete(w http.ResponseWriter, r *http.Request) error {
	registration, err := d.registration(r)
	if err != nil {
		return err
	}
	if err := d.Store.End(r.Context(), registration, r.PathValue("source")); err != nil {
		return err
	}
	web.Write(w, http.StatusOK, struct{}{})
	return nil
}

// events streams every instance once, then each that changed, and each that is gone. A client that is slow misses
// states between, never the last one. The subscription comes before the first read. After a lost connection a client begins again
// with all instances.
func (d *Endpoint) events(w http.ResponseWriter, r *http.Request) error {
	changed, stop := d.Store.Changes(web.Namespace(r))
	defer stop()
	w = ports.Stream(w)
	control := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	heartbeat := time.NewTicker(max(d.Heartbeat, time.Second))
	defer heartbeat.Stop()
	shown := map[string]string{}
	for {
		all, err := d.Store.Sources(r.Context(), web.GrantFrom(r.Context()), r.URL.Query().Get("source"))
		if err != nil {
			d.Log.Error("a stream ended", "error", err)
			return nil // the answer has started, so its status cannot change
		}
		if !send(w, shown, all) || control.Flush() != nil {
			return nil
		}
		select {
		case <-changed:
		case <-heartbeat.C:
			if _, err := fmt.Fprint(w, ": alive\n\n"); err != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

// send writes each instance that differs from its last event, and each deletion. It reports whether the client is still
// connected.
func send(w http.ResponseWriter, shown map[string]string, all []instances.Instance) bool {
	there := make(map[string]bool, len(all))
	for _, i := range all {
		there[i.Name] = true
		data, err := json.Marshal(i)
		if err != nil || shown[i.Name] == string(data) {
			continue
		}
		shown[i.Name] = string(data)
		if _, err := fmt.Fprintf(w, "event: instance\ndata: %s\n\n", data); err != nil {
			return false
		}
	}
	for name := range shown {
		if there[name] {
			continue
		}
		delete(shown, name)
		data, _ := json.Marshal(map[string]string{"name": name}) // strings always have a JSON form
		if _, err := fmt.Fprintf(w, "event: gone\ndata: %s\n\n", data); err != nil {
			return false
		}
	}
	return true
}
