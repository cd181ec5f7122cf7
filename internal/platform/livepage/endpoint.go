package livepage

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

const (
	// root is the path of the page.
	root = "/live/"
	// maxRows is the maximum number of rows on the page.
	maxRows = 500
	// maxText is the maximum length of a search, in bytes.
	maxText = 100
	// settle collects changes that come together.
	settle = 250 * time.Millisecond
	// policy lets the page load only files of this server, and nothing inline.
	policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

//go:embed static
var static embed.FS

// Endpoint serves the page.
type Endpoint struct {
	Board *Board
	Clock clock.WithTicker
	// Heartbeat is the interval of comments in a stream without changes.
	Heartbeat time.Duration
	Log       *slog.Logger
	pages     *template.Template
}

// New returns the endpoint of a Board.
func New(board *Board, now clock.WithTicker, heartbeat time.Duration, log *slog.Logger) (*Endpoint, error) {
	d := &Endpoint{Board: board, Clock: now, Heartbeat: heartbeat, Log: log}
	var err error
	d.pages, err = template.New("").Funcs(template.FuncMap{
		"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"clock":  formatClock,
		"age":    func(t time.Time) string { return span(now.Since(t)) },
		"left":   func(t time.Time) string { return span(t.Sub(now.Now())) },
		"took":   took,
		"images": imagesText, "prepared": preparedText,
		"source": func(source string) string { return sourceURL(board.options.SourceURL, source) },
		"late":   func(r *Row) bool { return r.NeedsPerson || r.Overdue(now.Now()) != nil },
		"per":    func(v float64) string { return fmt.Sprintf("%.1f", v) },
	}).ParseFS(static, "static/page.html")
	return d, err
}

// sourceURL is the address of a user or team of the platform, "" if none is known.
func sourceURL(pattern, source string) string {
	if pattern == "" || source == "" {
		return ""
	}
	return strings.ReplaceAll(pattern, "{source}", url.PathEscape(source))
}

// Routes implements web.Endpoint.
func (d *Endpoint) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET "+root+"{$}", d.page)
	mux.HandleFunc("GET "+root+"events", d.events)
	mux.HandleFunc("GET "+root+"instances/{name}", d.instance)
	mux.HandleFunc("GET "+root+"instances/{name}/events", d.instanceEvents)
	mux.HandleFunc("GET "+root+"ended/{uid}", d.record)
	for name, kind := range map[string]string{"style.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"} {
		mux.HandleFunc("GET "+root+name, func(w http.ResponseWriter, _ *http.Request) {
			data, err := static.ReadFile("static/" + name)
			if err != nil {
				d.Fail(w, web.Failure{Status: http.StatusInternalServerError, Message: err.Error()})
				return
			}
			headers(w, kind)
			_, _ = w.Write(data) // the client is gone
		})
	}
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, root, http.StatusMovedPermanently)
	})
}

// Owns implements web.Endpoint.
func (d *Endpoint) Owns(path string) bool { return path == "/live" || strings.HasPrefix(path, root) }

// Token implements web.Endpoint. A browser asks the user for it as a password.
func (d *Endpoint) Token(_ http.ResponseWriter, r *http.Request) (string, *http.Request, error) {
	return tokens.FromRequest(r), r, nil
}

// Fail implements web.Endpoint.
func (d *Endpoint) Fail(w http.ResponseWriter, p web.Failure) {
	headers(w, "text/plain; charset=utf-8")
	w.WriteHeader(p.Status)
	_, _ = fmt.Fprintln(w, p.Message) // the client is gone
}

// headers sets the headers of every answer: no cache keeps it, the page loads nothing from elsewhere, and no other page
// shows it in a frame.
func headers(w http.ResponseWriter, kind string) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

// content is the data of the templates.
type content struct {
	Namespace    string
	Now          time.Time
	Summary      Summary
	Plots        []Plot
	Filter       Filter
	Query        string
	Alerts       []Alert
	Problems     []*Problem
	NeedPerson   int
	Others       []*Row
	Found, Shown int
	Most         int
	// Cursor names the version that the page shows.
	Cursor string
	// Ended are instances with a record, EndedFound is their number without the limit of the page, Records reports
	// whether records are kept.
	Ended      []Ended
	EndedFound int
	Records    bool
}

func parseFilter(r *http.Request) (Filter, string) {
	values := r.URL.Query()
	text := values.Get("q")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return Filter{Text: strings.ToLower(strings.TrimSpace(text)), Challenge: values.Get("challenge"), State: view.State(values.Get("state"))}, text
}

// newContent converts a view into the data of a page.
func (d *Endpoint) newContent(namespace string, v View, f Filter, query string) content {
	c := content{
		Namespace: namespace, Now: d.Clock.Now(), Summary: v.Summary, Plots: plots(d.Board.History(namespace)), Filter: f, Query: query, Most: maxRows,
		Cursor: d.Board.Cursor(v.Version),
	}
	c.add(v)
	for _, row := range v.Rows {
		if !f.matches(row) {
			continue
		}
		if c.Found++; c.Found > maxRows {
			continue
		}
		c.Others = append(c.Others, row)
		c.Shown++
	}
	d.addEnded(&c)
	return c
}

// add adds what is wrong.
func (c *content) add(v View) {
	c.Alerts, c.Problems = v.Alerts, v.Problems
	for _, p := range v.Problems {
		c.NeedPerson += p.Count
	}
}

// Filtered reports whether a reader searches: the instances then come before the rest.
func (c content) Filtered() bool { return c.Filter != Filter{} }

// addEnded adds the instances that have ended.
func (d *Endpoint) addEnded(c *content) {
	c.Records = d.Board.options.RecordNamespace != ""
	c.Ended, c.EndedFound = d.Board.Ended(c.Namespace, c.Filter)
}

// isReady answers that the cache is not complete, if it is not.
func (d *Endpoint) isReady(w http.ResponseWriter) bool {
	if d.Board.Ready() {
		return true
	}
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Refresh", "1") // a browser loads the page again
	d.Fail(w, web.Failure{Status: http.StatusServiceUnavailable, Message: "the page reads the instances, and loads again in a second"})
	return false
}

func (d *Endpoint) page(w http.ResponseWriter, r *http.Request) {
	if !d.isReady(w) {
		return
	}
	namespace := web.GrantFrom(r.Context()).Namespace
	f, query := parseFilter(r)
	d.write(w, "page", d.newContent(namespace, d.Board.Read(namespace, 0), f, query))
}

// instanceContent is the data of the template of an instance.
type instanceContent struct {
	Row      *Row
	Timeline []Moment
	Remedies []view.Remedy
	Now      time.Time
}

func (d *Endpoint) contentOfInstance(row *Row) instanceContent {
	return instanceContent{Row: row, Timeline: timeline(&row.Row, d.Board.Events(row.UID)), Remedies: row.Remedies(), Now: d.Clock.Now()}
}

// instance shows a live one, or leads to the record of the last one of that name. Between both it waits for the record.
func (d *Endpoint) instance(w http.ResponseWriter, r *http.Request) {
	if !d.isReady(w) {
		return
	}
	namespace, name := web.GrantFrom(r.Context()).Namespace, r.PathValue("name")
	if row := d.Board.Row(namespace, name); row != nil {
		d.write(w, "instance", d.contentOfInstance(row))
		return
	}
	if last, ok := d.Board.LastEnded(namespace, name); ok {
		headers(w, "text/plain; charset=utf-8")
		http.Redirect(w, r, root+"ended/"+string(last.UID), http.StatusSeeOther)
		return
	}
	if d.Board.Awaited(namespace, name) {
		w.Header().Set("Refresh", "5") // then its record may be there
	}
	d.Fail(w, web.Failure{Status: http.StatusNotFound, Message: "this instance does not exist, or no longer: kubectl berg record shows what is known of it"})
}

// record shows no record of a namespace that the token is not for: it answers as if there were none.
func (d *Endpoint) record(w http.ResponseWriter, r *http.Request) {
	if !d.isReady(w) {
		return
	}
	record, ok, err := d.Board.Record(r.Context(), web.GrantFrom(r.Context()).Namespace, types.UID(r.PathValue("uid")))
	switch {
	case err != nil:
		d.Log.Error("a record could not be read", "uid", r.PathValue("uid"), "error", err)
		d.Fail(w, web.Failure{Status: http.StatusBadGateway, Message: "the record could not be read: the log of berg-api says why"})
	case !ok:
		d.Fail(w, web.Failure{Status: http.StatusNotFound, Message: "there is no record of this instance, or no longer"})
	default:
		d.write(w, "record", record)
	}
}

// instanceEvents streams the page of one instance as it changes, until it is gone.
func (d *Endpoint) instanceEvents(w http.ResponseWriter, r *http.Request) {
	if !d.isReady(w) {
		return
	}
	namespace, name := web.GrantFrom(r.Context()).Namespace, r.PathValue("name")
	row := d.Board.Row(namespace, name)
	if row == nil {
		d.Fail(w, web.Failure{Status: http.StatusNotFound, Message: "this instance does not exist, or no longer"})
		return
	}
	changed, stop := d.Board.RowChanges(row)
	defer stop()
	uid := row.UID
	d.stream(w, r, changed, func() bool {
		row := d.Board.Row(namespace, name)
		if row == nil || row.UID != uid {
			_ = event(w, "again", nil) // the client is gone, or loads the current page
			return false
		}
		return d.sendParts(w, d.contentOfInstance(row), "instance-body")
	}, nil)
}

// The page is complete before its first byte is sent, so an error can still be answered.
func (d *Endpoint) write(w http.ResponseWriter, name string, value any) {
	var page bytes.Buffer
	if err := d.pages.ExecuteTemplate(&page, name, value); err != nil {
		d.Log.Error("a page could not be written", "page", name, "error", err)
		d.Fail(w, web.Failure{Status: http.StatusInternalServerError, Message: "the page could not be written: the log of berg-api says why"})
		return
	}
	headers(w, "text/html; charset=utf-8")
	_, _ = w.Write(page.Bytes()) // the client is gone
}

// changedRow is a row in the stream. Without HTML it is to be taken out.
type changedRow struct {
	ID   string `json:"id"`
	HTML string `json:"html,omitempty"`
}

// livingParts are the parts of the page that each event writes again.
var livingParts = []string{"alerts", "dangers", "counts", "problems", "summary", "found", "ended"}

// events streams changes. A slow client misses intermediate states, but never the last one: each event has the current
// state, and the next read starts at the version of the last event. The subscription comes before the first read, so that no
// change is lost.
func (d *Endpoint) events(w http.ResponseWriter, r *http.Request) {
	if !d.isReady(w) {
		return
	}
	namespace := web.GrantFrom(r.Context()).Namespace
	f, query := parseFilter(r)
	changed, stop := d.Board.Changes(namespace)
	defer stop()
	// The version that the client has, from the last event that reached it, or from its page.
	version := d.Board.ParseCursor(cmp.Or(r.Header.Get("Last-Event-Id"), r.URL.Query().Get("after")))
	send := func() bool {
		v := d.Board.Read(namespace, version)
		if !v.All && len(v.Rows)+len(v.Gone) > maxRows {
			v = d.Board.Read(namespace, 0)
		}
		version = v.Version
		if v.All {
			return d.sendParts(w, d.newContent(namespace, v, f, query), append(slices.Clone(livingParts), "others")...)
		}
		return d.send(w, namespace, f, v)
	}
	d.stream(w, r, changed, send, func() bool {
		// The plots and the times have changed, also where no row has.
		v := d.Board.Read(namespace, ^uint64(0))
		return d.send(w, namespace, f, View{Version: version, Summary: v.Summary, Alerts: v.Alerts, Problems: v.Problems})
	})
}

// stream keeps an answer open. It calls send at first and after changes; several changes within settle cause one call.
// It calls idle at each heartbeat; nil writes a comment, which keeps proxies from closing the connection. send and idle
// report whether the stream goes on.
func (d *Endpoint) stream(w http.ResponseWriter, r *http.Request, changed <-chan struct{}, send, idle func() bool) {
	w = ports.Stream(w)
	headers(w, "text/event-stream")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	comment := func(text string) func() bool {
		return func() bool {
			_, err := fmt.Fprintf(w, ": %s\n\n", text)
			return err == nil
		}
	}
	if idle == nil {
		idle = comment("alive")
	}
	heartbeat := d.Clock.NewTicker(max(d.Heartbeat, time.Second))
	defer heartbeat.Stop()
	if !comment("connected")() {
		return
	}
	for next := send; next() && control.Flush() == nil; {
		select {
		case <-r.Context().Done():
			return
		case <-heartbeat.C():
			next = idle
			continue
		case <-changed:
			next = send
		}
		collected := d.Clock.NewTimer(settle)
		select {
		case <-r.Context().Done():
			collected.Stop()
			return
		case <-collected.C():
		}
	}
	_ = control.Flush() // the last event
}

// send writes the changes in a view, and reports whether the client is still connected.
func (d *Endpoint) send(w http.ResponseWriter, namespace string, f Filter, v View) bool {
	rows := make([]changedRow, 0, len(v.Rows)+len(v.Gone))
	for _, row := range v.Rows {
		changed := changedRow{ID: row.ID()}
		if f.matches(row) {
			var html bytes.Buffer
			if err := d.pages.ExecuteTemplate(&html, "row", row); err != nil {
				d.Log.Error("a row could not be written", "error", err)
				return false
			}
			changed.HTML = html.String()
		}
		rows = append(rows, changed)
	}
	for _, id := range v.Gone {
		rows = append(rows, changedRow{ID: id}) // the client begins with the last one: another instance may have the name by now
	}
	page := content{
		Namespace: namespace, Filter: f, Summary: v.Summary, Plots: plots(d.Board.History(namespace)), Most: maxRows, Cursor: d.Board.Cursor(v.Version),
		Found: d.Board.Found(namespace, f),
	}
	page.add(v)
	page.Shown = min(page.Found, maxRows)
	d.addEnded(&page)
	// The cursor is only in the last event: a client that loses the connection before it gets both events again.
	return (len(rows) == 0 || event(w, "rows", rows)) && d.sendParts(w, page, livingParts...)
}

// sendParts writes parts of a page. Each name is both the template and the element that it replaces.
func (d *Endpoint) sendParts(w http.ResponseWriter, value any, names ...string) bool {
	parts := map[string]string{}
	for _, name := range names {
		var part bytes.Buffer
		if err := d.pages.ExecuteTemplate(&part, name, value); err != nil {
			d.Log.Error("a part of the page could not be written", "part", name, "error", err)
			return false
		}
		parts[name] = part.String()
	}
	if c, ok := value.(content); ok {
		if _, err := fmt.Fprintf(w, "id: %s\n", c.Cursor); err != nil {
			return false
		}
	}
	return event(w, "parts", parts)
}

func event(w http.ResponseWriter, name string, value any) bool {
	data, err := json.Marshal(value)
	if err != nil {
		return false
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data)
	return err == nil
}
