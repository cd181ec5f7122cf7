package launch

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Gate is an operator's connection to the API server: it listens on this machine without TLS, and
// forwards requests with the credentials of an account. It records writes, can delay requests, and
// can be shut.
type Gate struct {
	server *httptest.Server

	mu     sync.Mutex
	shut   bool
	writes []Write
	holds  []*hold
}

// Write is a request that changes something.
type Write struct {
	At           time.Time // when it came to the gate
	Method, Path string
}

type hold struct {
	match    func(*http.Request) bool
	held     chan struct{} // closed when a request is held up
	released chan struct{} // closed to let it go on
}

// NewGate opens a gate for an account. Each wrap is a handler around those before; the innermost
// passes requests on. A request comes to them unless the gate is shut.
func NewGate(account *rest.Config, wraps ...func(http.Handler) http.Handler) (*Gate, error) {
	target, err := url.Parse(account.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(account)
	if err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0) // lines that break here are meant to
	var handler http.Handler = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch
		ErrorLog:      quiet,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	for _, wrap := range wraps {
		handler = wrap(handler)
	}
	g := &Gate{}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.pass(r)
		handler.ServeHTTP(w, r)
	}))
	g.server.Config.ErrorLog = quiet
	g.server.Start()
	return g, nil
}

// Config is how an operator reaches the gate: it needs no credentials.
func (g *Gate) Config() *rest.Config { return &rest.Config{Host: g.server.URL} }

// Close cuts all connections and ends the gate.
func (g *Gate) Close() {
	g.server.CloseClientConnections()
	g.server.Close()
}

// pass notes a request, and returns when it may go on. It does not return for one that is cut
// off.
func (g *Gate) pass(r *http.Request) {
	g.mu.Lock()
	if g.shut {
		g.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	if r.Method != http.MethodGet {
		g.writes = append(g.writes, Write{time.Now(), r.Method, r.URL.Path})
	}
	var mine *hold
	for i, h := range g.holds {
		if h.match(r) {
			mine = h
			g.holds = append(g.holds[:i], g.holds[i+1:]...)
			close(h.held)
			break
		}
	}
	g.mu.Unlock()
	if mine == nil {
		return
	}
	select {
	case <-mine.released:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler) // the client does not wait any more
	}
}

// HoldUp keeps the first request that matches waiting. held is closed when it has come; release
// lets it go on, or lets it pass when it comes, and may be called more than once.
func (g *Gate) HoldUp(match func(*http.Request) bool) (held <-chan struct{}, release func()) {
	h := &hold{match: match, held: make(chan struct{}), released: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = append(g.holds, h)
	return h.held, sync.OnceFunc(func() { close(h.released) })
}

// SetShut cuts the operator off from the API server, or lets it through again.
func (g *Gate) SetShut(shut bool) {
	g.mu.Lock()
	g.shut = shut
	g.mu.Unlock()
	if shut {
		g.server.CloseClientConnections()
	}
}

// Writes returns the requests after a time that were to change something, the first one first.
func (g *Gate) Writes(since time.Time) []Write {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Write
	for _, w := range g.writes {
		if w.At.After(since) {
			out = append(out, w)
		}
	}
	return out
}
