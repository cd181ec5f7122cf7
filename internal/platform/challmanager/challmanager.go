// Package challmanager is the endpoint for CTFd: the REST calls that its plugin ctfd-chall-manager makes.
//
// Every answer is JSON. An error has code, message and details, all three: without details the plugin itself fails. Ids
// are decimals in strings, 64-bit integers are strings.
package challmanager

import (
	"encoding/json"
	"html"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

// Endpoint serves the calls.
type Endpoint struct {
	Store *instances.Store
	// BootWait is the maximum wait for the answer to a start, ReadWait for the answer to a read of an instance that
	// starts.
	BootWait, ReadWait time.Duration
	// IgnoreAdditional: variables for a scenario are accepted, and have no effect. Default: they are refused.
	IgnoreAdditional bool
	Log              *slog.Logger
}

// The error codes are numbers of gRPC, which the plugin expects.
const (
	codeInvalid      = 3
	codeNotFound     = 5
	codeExists       = 6
	codeForbidden    = 7
	codeExhausted    = 8
	codeRefused      = 9
	codeInternal     = 13
	codeUnavailable  = 14
	codeUnknownCall  = 12
	codeUnauthorised = 16
)

// Routes implements web.Endpoint.
func (d *Endpoint) Routes(mux *http.ServeMux) {
	web.Handle(mux, d.Log, fail, map[string]web.Call{
		"GET /healthcheck":                             d.health,
		"POST /api/v1/challenge":                       d.createChallenge,
		"GET /api/v1/challenge":                        d.listChallenges,
		"GET /api/v1/challenge/{id}":                   d.getChallenge,
		"PATCH /api/v1/challenge/{id}":                 d.updateChallenge,
		"DELETE /api/v1/challenge/{id}":                d.deleteChallenge,
		"POST /api/v1/instance":                        d.createInstance,
		"GET /api/v1/instance":                         d.listInstances,
		"GET /api/v1/instance/{challenge}/{source}":    d.getInstance,
		"PATCH /api/v1/instance/{challenge}/{source}":  d.renewInstance,
		"DELETE /api/v1/instance/{challenge}/{source}": d.deleteInstance,
	})
}

// Owns implements web.Endpoint.
func (d *Endpoint) Owns(path string) bool {
	return path == "/healthcheck" || path == "/api/v1" || strings.HasPrefix(path, "/api/v1/")
}

// Token implements web.Endpoint.
func (d *Endpoint) Token(_ http.ResponseWriter, r *http.Request) (string, *http.Request, error) {
	return tokens.FromRequest(r), r, nil
}

// codes maps HTTP statuses to error codes. Status 400 has two codes: codeInvalid for a malformed request, and
// codeRefused, which fail chooses, for a request that the state does not allow.
var codes = map[int]int{
	http.StatusBadRequest: codeInvalid, http.StatusNotFound: codeNotFound, http.StatusConflict: codeExists,
	http.StatusTooManyRequests: codeExhausted, http.StatusUnauthorized: codeUnauthorised, http.StatusForbidden: codeForbidden,
	http.StatusMethodNotAllowed: codeUnknownCall, http.StatusNotImplemented: codeUnknownCall,
	http.StatusServiceUnavailable: codeUnavailable,
	http.StatusRequestTimeout:     codeInvalid, http.StatusRequestEntityTooLarge: codeInvalid,
}

// Fail implements web.Endpoint. A call that does not exist has status 501.
func (d *Endpoint) Fail(w http.ResponseWriter, p web.Failure) {
	if p.Status == http.StatusMethodNotAllowed {
		p.Status = http.StatusNotImplemented
	}
	write(w, p, 0)
}

type failed struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details []any  `json:"details"`
}

func write(w http.ResponseWriter, p web.Failure, code int) {
	if code == 0 {
		var known bool
		if code, known = codes[p.Status]; !known {
			code = codeInternal
		}
	}
	web.Write(w, p.Status, failed{code, p.Message, []any{}})
}

// fail answers with an error. The status of a request that the state does not allow has two codes.
func fail(w http.ResponseWriter, f web.Failure, err error) {
	code := 0
	if instances.Is(err, instances.Refused) {
		code = codeRefused
	}
	write(w, f, code)
}

func (d *Endpoint) health(w http.ResponseWriter, _ *http.Request) error {
	web.Write(w, http.StatusOK, struct{}{})
	return nil
}

// challenge is a challenge in an answer.
type challenge struct {
	ID         string            `json:"id"`
	Scenario   string            `json:"scenario"`
	Timeout    *string           `json:"timeout"`
	Until      *string           `json:"until"`
	Instances  []instance        `json:"instances"`
	Additional map[string]string `json:"additional"`
	Min        string            `json:"min"`
	Max        string            `json:"max"`
}

// instance is an instance in an answer.
type instance struct {
	ChallengeID    string            `json:"challengeId"`
	SourceID       string            `json:"sourceId"`
	Since          *string           `json:"since,omitempty"`
	LastRenew      *string           `json:"lastRenew,omitempty"`
	Until          *string           `json:"until,omitempty"`
	ConnectionInfo string            `json:"connectionInfo"`
	Flags          []string          `json:"flags"`
	Additional     map[string]string `json:"additional"`
}

// result is a line of a list.
type result[T any] struct {
	Result T `json:"result"`
}

// formatTime is nil, and so null or absent, for a time that is not known.
func formatTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format("2006-01-02T15:04:05.000Z")
	return &text
}

// formatUntil is formatTime for an end, which comes back as the plugin sent it.
func formatUntil(until time.Time, sent string) *string {
	switch {
	case until.IsZero():
		return nil
	case sent == "":
		sent = until.UTC().Format(time.RFC3339)
	}
	return &sent
}

// seconds is a duration as protobuf's JSON has it.
func seconds(duration time.Duration) *string {
	if duration == 0 {
		return nil
	}
	text := strconv.FormatFloat(duration.Seconds(), 'f', -1, 64) + "s"
	return &text
}

// shownInstance is an instance for the plugin, which takes since for the sign that it runs. forced sets since also for
// an instance that does not run yet, with a sentence instead of addresses.
func shownInstance(i instances.Instance, forced bool) instance {
	line := instance{
		ChallengeID: i.Challenge, SourceID: i.Source, LastRenew: formatTime(i.Renewed), Until: formatUntil(i.Until, i.UntilText),
		Flags: i.Flags, Additional: map[string]string{},
	}
	if line.Flags == nil {
		line.Flags = []string{}
	}
	switch {
	case i.State == view.Running:
		line.Since = formatTime(i.Since)
		line.ConnectionInfo = ConnectionInfo(i.Connection, i.Endpoints)
	case forced:
		line.Since = formatTime(i.Created)
		line.ConnectionInfo = html.EscapeString(i.Reason)
	}
	return line
}

// separator stands between addresses. CTFd shows line breaks as spaces.
const separator = " | "

// ConnectionInfo is the text for players: the author's, or each address, with the name of the port where there are several.
// CTFd puts it into one page as it is and into another one escaped, so that nothing in it may be markup.
func ConnectionInfo(text string, endpoints []bergv1.ServiceEndpoint) string {
	if text != "" {
		return html.EscapeString(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), separator))
	}
	lines := make([]string, 0, len(endpoints))
	for _, e := range endpoints {
		line := view.Address(e)
		if len(endpoints) > 1 {
			line = e.Name + ": " + line
		}
		lines = append(lines, html.EscapeString(line))
	}
	return strings.Join(lines, separator)
}

func (d *Endpoint) shownChallenge(r *http.Request, registration instances.Registration) (challenge, error) {
	all, err := d.Store.ByRegistration(r.Context(), registration)
	if err != nil {
		return challenge{}, err
	}
	return shownRegistration(registration, all), nil
}

func shownRegistration(registration instances.Registration, all []instances.Instance) challenge {
	c := challenge{
		ID: registration.ID, Scenario: registration.Scenario, Timeout: seconds(registration.Timeout), Until: formatUntil(registration.Until, registration.UntilText),
		Instances: make([]instance, 0, len(all)), Additional: map[string]string{},
		Min: strconv.FormatInt(registration.Min, 10), Max: strconv.FormatInt(registration.Max, 10),
	}
	for _, i := range all {
		row := shownInstance(i, true) // the page of admins splits since and lastRenew, so that both must be there
		if i.State != view.Running {
			row.ConnectionInfo = html.EscapeString(i.Reason)
		}
		c.Instances = append(c.Instances, row)
	}
	return c
}

// integer is a 64-bit integer, a number or a string in JSON.
type integer int64

var integerType = reflect.TypeFor[int64]()

func (i *integer) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "" || text == "null" {
		*i = 0
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		// The plugin's form may send 5.0.
		f, floatErr := strconv.ParseFloat(text, 64)
		if floatErr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return &json.UnmarshalTypeError{Value: "value", Type: integerType}
		}
		n = int64(f)
	}
	*i = integer(n)
	return nil
}

// request is the body in which the plugin describes a challenge. A nil pointer means that the field is absent or null.
type request struct {
	ID             string         `json:"id"`
	Scenario       *string        `json:"scenario"`
	Timeout        *string        `json:"timeout"`
	Until          *string        `json:"until"`
	Additional     map[string]any `json:"additional"`
	Min            *integer       `json:"min"`
	Max            *integer       `json:"max"`
	UpdateMask     *string        `json:"updateMask"`
	UpdateMaskName *string        `json:"update_mask"`
}

// apply writes the named fields of a request into a registration. One that was not sent, or is null, is cleared. It has no side
// effects, as Store.Update may call it several times.
func (q request) apply(to *instances.Registration, fields []string, ignoreAdditional bool) error {
	for _, field := range fields {
		switch field {
		case "scenario":
			to.Scenario = ""
			if q.Scenario != nil {
				to.Scenario = *q.Scenario
			}
		case "timeout":
			to.Timeout = 0
			if q.Timeout == nil || *q.Timeout == "" {
				continue
			}
			lives, err := time.ParseDuration(*q.Timeout)
			if err != nil || lives < 0 {
				return instances.Fail(instances.Invalid, "timeout: must be a number of seconds such as 600s")
			}
			to.Timeout = lives
		case "until":
			to.Until, to.UntilText = time.Time{}, ""
			if q.Until == nil || *q.Until == "" {
				continue
			}
			until, err := time.Parse(time.RFC3339, *q.Until)
			if err != nil {
				return instances.Fail(instances.Invalid, "until: must be a time such as 2030-01-31T18:00:00Z")
			}
			to.Until, to.UntilText = until, *q.Until
		case "additional":
			if len(q.Additional) > 0 && !ignoreAdditional {
				names := make([]string, 0, len(q.Additional))
				for name := range q.Additional {
					names = append(names, name)
				}
				slices.Sort(names)
				return instances.Fail(instances.Invalid, "additional: %s cannot be passed to a Challenge. Remove it, or set ADDITIONAL_POLICY=ignore of berg-api", strings.Join(names, ", "))
			}
		case "min", "max":
			value, number := q.Min, &to.Min
			if field == "max" {
				value, number = q.Max, &to.Max
			}
			*number = 0
			if value != nil {
				*number = int64(*value)
			}
			if *number < 0 {
				return instances.Fail(instances.Invalid, "%s: must not be negative", field)
			}
		}
	}
	return nil
}

// fields of a challenge that the plugin may change.
var fields = []string{"scenario", "timeout", "until", "additional", "min", "max"}

// A registration that exists is an error, also with the same content.
func (d *Endpoint) createChallenge(w http.ResponseWriter, r *http.Request) error {
	var q request
	if err := web.Read(w, r, &q); err != nil {
		return err
	}
	if err := checkID("id", q.ID); err != nil {
		return err
	}
	registration := instances.NewRegistration(web.GrantFrom(r.Context()), q.ID)
	if err := q.apply(&registration, fields, d.IgnoreAdditional); err != nil {
		return err
	}
	registration, err := d.Store.Register(r.Context(), registration)
	if err != nil {
		return err
	}
	web.Write(w, http.StatusOK, shownRegistration(registration, nil))
	return nil
}

func (d *Endpoint) registration(r *http.Request, id string) (instances.Registration, error) {
	return d.Store.Registration(r.Context(), web.GrantFrom(r.Context()), id)
}

// answerChallenge answers with a registration, as the platform is shown it.
func (d *Endpoint) answerChallenge(w http.ResponseWriter, r *http.Request, registration instances.Registration) error {
	c, err := d.shownChallenge(r, registration)
	if err != nil {
		return err
	}
	web.Write(w, http.StatusOK, c)
	return nil
}

func (d *Endpoint) getChallenge(w http.ResponseWriter, r *http.Request) error {
	registration, err := d.registration(r, r.PathValue("id"))
	if err != nil {
		return err
	}
	return d.answerChallenge(w, r, registration)
}

// updateChallenge parses the body twice: a field that is null is cleared, and one that is absent stays.
func (d *Endpoint) updateChallenge(w http.ResponseWriter, r *http.Request) error {
	var raw map[string]json.RawMessage
	data, err := web.Body(w, r)
	if err != nil {
		return err
	}
	var q request
	if len(strings.TrimSpace(string(data))) > 0 {
		if json.Unmarshal(data, &raw) != nil || json.Unmarshal(data, &q) != nil {
			return instances.Fail(instances.Invalid, "the body must be a JSON object with the fields of a challenge")
		}
	}
	names, err := q.changed(raw)
	if err != nil {
		return err
	}
	registration, err := d.Store.Update(r.Context(), web.GrantFrom(r.Context()), r.PathValue("id"), func(to *instances.Registration) error {
		return q.apply(to, names, d.IgnoreAdditional)
	})
	if err != nil {
		return err
	}
	return d.answerChallenge(w, r, registration)
}

// changed returns the fields that a request names in its mask, or all fields of the request if it has no mask.
func (q request) changed(raw map[string]json.RawMessage) ([]string, error) {
	mask := q.UpdateMask
	if mask == nil {
		mask = q.UpdateMaskName
	}
	var names []string
	if mask == nil {
		for _, name := range fields {
			if _, sent := raw[name]; sent {
				names = append(names, name)
			}
		}
		return names, nil
	}
	for name := range strings.SplitSeq(*mask, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "" || name == "updateStrategy" || name == "update_strategy":
		case slices.Contains(fields, name):
			names = append(names, name)
		default:
			return nil, instances.Fail(instances.Invalid, "updateMask: must be some of %s, separated by commas", strings.Join(fields, ", "))
		}
	}
	return names, nil
}

func (d *Endpoint) deleteChallenge(w http.ResponseWriter, r *http.Request) error {
	if err := d.Store.Unregister(r.Context(), web.GrantFrom(r.Context()), r.PathValue("id")); err != nil {
		return err
	}
	web.Write(w, http.StatusOK, struct{}{})
	return nil
}

// listChallenges writes all challenges of the platform. Everything is read before the first line, because an error can
// no longer change the status after it.
func (d *Endpoint) listChallenges(w http.ResponseWriter, r *http.Request) error {
	registrations, err := d.Store.Registrations(r.Context(), web.GrantFrom(r.Context()))
	if err != nil {
		return err
	}
	all, err := d.Store.Sources(r.Context(), web.GrantFrom(r.Context()), "")
	if err != nil {
		return err
	}
	byChallenge := map[string][]instances.Instance{}
	for _, i := range all {
		byChallenge[i.Challenge] = append(byChallenge[i.Challenge], i)
	}
	lines := newLines[challenge](w)
	for _, registration := range registrations {
		lines.add(shownRegistration(registration, byChallenge[registration.ID]))
	}
	return nil
}

// lines writes a list, an object a line.
type lines[T any] struct{ encoder *json.Encoder }

func newLines[T any](w http.ResponseWriter) lines[T] {
	web.Headers(w)
	w.WriteHeader(http.StatusOK)
	return lines[T]{json.NewEncoder(w)}
}

func (l lines[T]) add(value T) { _ = l.encoder.Encode(result[T]{value}) } // the client is gone

// checkID accepts any text of the plugin: the store never makes a name of it without hashing it.
func checkID(field, id string) error {
	if id == "" || len(id) > instances.MaxID {
		return instances.Fail(instances.Invalid, "%s: must have 1 to %d bytes", field, instances.MaxID)
	}
	return nil
}

// createInstance starts an instance and waits until it runs, or until waiting does not help. A second request during the start joins it, since players
// click twice; only a running instance is a conflict.
func (d *Endpoint) createInstance(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		ChallengeID string         `json:"challengeId"`
		SourceID    string         `json:"sourceId"`
		Additional  map[string]any `json:"additional"`
	}
	if err := web.Read(w, r, &q); err != nil {
		return err
	}
	if err := checkID("challengeId", q.ChallengeID); err != nil {
		return err
	}
	if err := (request{Additional: q.Additional}).apply(&instances.Registration{}, []string{"additional"}, d.IgnoreAdditional); err != nil {
		return err
	}
	registration, err := d.registration(r, q.ChallengeID)
	if err != nil {
		return err
	}
	i, started, err := d.Store.Boot(r.Context(), registration, q.SourceID, options(registration, q.SourceID))
	if err != nil {
		return err
	}
	if !started && i.State == view.Running {
		return instances.Fail(instances.Exists, "instance already exists: source %s runs challenge %s", q.SourceID, q.ChallengeID)
	}
	if started || i.MayRunSoon() {
		if i, err = d.Store.WaitRunning(r.Context(), registration, i, d.BootWait); err != nil {
			return err
		}
	}
	web.Write(w, http.StatusOK, shownInstance(i, true))
	return nil
}

// shared is the source of an instance that all players share.
const shared = "0"

// options are those of a start. A shared instance has no player who could renew it: without timeout and until it never ends.
func options(registration instances.Registration, source string) instances.Start {
	if source == shared && registration.Timeout == 0 && registration.Until.IsZero() {
		return instances.Start{Timeout: web.MaxTimeout}
	}
	return instances.Start{}
}

// getInstance waits for a starting instance for ReadWait, unless waiting does not help. A read has no error because the
// instance cannot start: the page shows the sentence that the start has shown.
func (d *Endpoint) getInstance(w http.ResponseWriter, r *http.Request) error {
	registration, err := d.registration(r, r.PathValue("challenge"))
	if err != nil {
		return err
	}
	i, err := d.Store.Instance(r.Context(), registration, r.PathValue("source"))
	if err != nil {
		return err
	}
	if i.MayRunSoon() {
		waited, err := d.Store.WaitRunning(r.Context(), registration, i, d.ReadWait)
		switch {
		case err == nil:
			i = waited
		case !instances.Is(err, instances.Refused) && !instances.Is(err, instances.Exhausted):
			return err
		}
	}
	web.Write(w, http.StatusOK, shownInstance(i, i.Stuck))
	return nil
}

// renewInstance gets no duration from the plugin: the instance lives from now on for the timeout of its registration.
func (d *Endpoint) renewInstance(w http.ResponseWriter, r *http.Request) error {
	registration, err := d.registration(r, r.PathValue("challenge"))
	if err != nil {
		return err
	}
	i, err := d.Store.Renew(r.Context(), registration, r.PathValue("source"), 0)
	if err != nil {
		return err
	}
	web.Write(w, http.StatusOK, shownInstance(i, false))
	return nil
}

// A player who stops and starts again gets a new instance, while the old one still ends.
func (d *Endpoint) deleteInstance(w http.ResponseWriter, r *http.Request) error {
	registration, err := d.registration(r, r.PathValue("challenge"))
	if err != nil {
		return err
	}
	if err := d.Store.End(r.Context(), registration, r.PathValue("source")); err != nil {
		return err
	}
	web.Write(w, http.StatusOK, struct{}{})
	return nil
}

// listInstances forces since, as for the page of admins. It accepts the parameter in both spellings of protobuf.
func (d *Endpoint) listInstances(w http.ResponseWriter, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return instances.Fail(instances.Invalid, "the query cannot be parsed")
	}
	source := query.Get("sourceId")
	if source == "" {
		source = query.Get("source_id")
	}
	if source != "" {
		if err := instances.CheckSource(source); err != nil {
			return err
		}
	}
	all, err := d.Store.Sources(r.Context(), web.GrantFrom(r.Context()), source)
	if err != nil {
		return err
	}
	lines := newLines[instance](w)
	for _, i := range all {
		lines.add(shownInstance(i, true))
	}
	return nil
}
