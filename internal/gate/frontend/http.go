package frontend

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
)

// serveHTTP answers one request, or sends it to a pod. The order matters: everything that needs no pod is answered before the
// player is trusted and counted.
func (f *Frontend) serveHTTP(w http.ResponseWriter, r *http.Request, port routing.Port) {
	player, ok := r.Context().Value(clientKey{}).(*client)
	if !ok || player.rate.requests.Wait(r.Context()) != nil {
		return // the client has gone
	}
	host, _ := routing.SplitHost(r.Host)
	switch {
	case r.Method == http.MethodConnect:
		http.Error(w, "CONNECT is not served", http.StatusMethodNotAllowed)
		return
	case r.TLS != nil && r.TLS.ServerName != "" && !strings.EqualFold(r.TLS.ServerName, host):
		// Browsers use one connection for several hosts of a certificate. They ask again with another one.
		http.Error(w, "this connection is for another host", http.StatusMisdirectedRequest)
		return
	}
	rule, known := f.table.Rule(port, r)
	switch {
	case !known && r.TLS == nil && f.options.RedirectToHTTPS && f.table.Secure(host):
		http.Redirect(w, r, "https://"+host+r.URL.RequestURI(), http.StatusPermanentRedirect) //nolint:gosec // the host has a route
		return
	case !known:
		writePage(w, r, pageUnknown)
		return
	case rule == nil:
		http.Error(w, "no rule of the route matches this request", http.StatusNotFound)
		return
	case rule.Redirect != nil:
		rule.Response.Apply(w.Header())
		w.Header().Set("Location", rule.Redirect.Location(r, r.TLS != nil, port.Number))
		w.WriteHeader(rule.Redirect.Code)
		return
	}
	backend := routing.Pick(rule.Backends)
	if backend == nil || backend.Invalid {
		writePage(w, r, pageIncomplete)
		return
	}
	player.guest.Trust()
	if !f.enter(host, player.from) {
		f.metrics.refused("host")
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests for this host at a time", http.StatusServiceUnavailable)
		return
	}
	defer f.leave(host, player.from)
	defer f.metrics.opened(host)()
	defer backend.Use.Begin()()
	f.forward(w, r, player, rule, backend)
}

// flushInterval is how long bytes of an answer with a Content-Length may wait, so that headers and a small body are one write. The library
// flushes all other answers after each write.
const flushInterval = 5 * time.Millisecond

type ruleKey struct{}

// forward keeps the player's addresses for a backend that wants the PROXY protocol. A rule without a timeout has none here.
func (f *Frontend) forward(w http.ResponseWriter, r *http.Request, player *client, rule *routing.Rule, backend *routing.Backend) {
	ctx := upstream.WithBackend(context.WithValue(r.Context(), ruleKey{}, rule), backend)
	if backend.Protocol == routing.Proxied {
		ctx = upstream.WithEnds(ctx, player.RemoteAddr(), player.LocalAddr())
	}
	if rule.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rule.Timeout)
		defer cancel()
	}
	f.proxy.ServeHTTP(w, r.WithContext(ctx))
}

// newProxy sets the headers of the client's address itself, and drops those that the client has sent. It has one ErrorHandler for
// all errors of a request: what has reached no pod gets a page for players, and what broke in between gets another one.
func (f *Frontend) newProxy(transport *upstream.Transport) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: flushInterval,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BufferPool:    f.buffers,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetXForwarded()
			pr.Out.Host = pr.In.Host
			rule, _ := pr.In.Context().Value(ruleKey{}).(*routing.Rule)
			if rule == nil {
				return
			}
			rule.Request.Apply(pr.Out.Header)
			if host := rule.Request.Set.Get("Host"); host != "" {
				pr.Out.Host = host
			}
			if backend := upstream.Backend(pr.In.Context()); backend != nil {
				backend.Headers.Apply(pr.Out.Header)
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			if rule, _ := answer.Request.Context().Value(ruleKey{}).(*routing.Rule); rule != nil {
				rule.Response.Apply(answer.Header)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			rule, _ := r.Context().Value(ruleKey{}).(*routing.Rule)
			switch {
			case errors.Is(err, upstream.ErrNoPod):
				writePage(w, r, explained(rule, pageStarting))
			case errors.Is(err, upstream.ErrNotConnected):
				f.metrics.unanswered()
				writePage(w, r, explained(rule, pageSilent))
			case errors.Is(err, context.DeadlineExceeded):
				http.Error(w, "the instance did not answer in time", http.StatusGatewayTimeout)
			default:
				writePage(w, r, pageBroken)
			}
		},
	}
}
