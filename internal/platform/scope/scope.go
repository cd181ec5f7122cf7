// Package scope is the endpoint for the Berg platform, which calls the Kubernetes API itself and knows no namespace: it
// creates, reads and deletes ChallengeInstances cluster-scoped, and lists and watches them in all namespaces. The
// endpoint inserts the platform's namespace into every call, and hides instances of other namespaces.
package scope

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

const root = "/apis/berg.norelect.ch/v1/"

// Endpoint serves the calls.
type Endpoint struct {
	proxy *httputil.ReverseProxy
}

// New returns the Endpoint of a cluster.
func New(config *rest.Config, log *slog.Logger) (*Endpoint, error) {
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the transport: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("parse the API server's address: %w", err)
	}
	d := &Endpoint{}
	d.proxy = &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // a watch
		Rewrite: func(p *httputil.ProxyRequest) {
			path := p.Out.URL.Path
			p.SetURL(&url.URL{Scheme: server.Scheme, Host: server.Host})
			p.Out.URL.Path, p.Out.URL.RawPath = path, ""
			p.Out.Host = server.Host
			// No other header reaches the API server: Authorization and Impersonate-* of a client must not act with the
			// rights of this program.
			kept := http.Header{}
			for _, name := range []string{"Accept", "Content-Type", "User-Agent"} {
				if values := p.Out.Header.Values(name); len(values) > 0 {
					kept[name] = values
				}
			}
			p.Out.Header = kept
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				log.Error("a call failed", "error", err)
			}
			d.Fail(w, web.Failure{Status: http.StatusServiceUnavailable, Message: "the cluster could not be reached: try again"})
		},
	}
	return d, nil
}

// Routes implements web.Endpoint. Its list is an allowlist: no other kind, verb or subresource reaches the API server,
// where this program has more rights than a platform.
func (d *Endpoint) Routes(mux *http.ServeMux) {
	for _, call := range []struct{ method, kind, name string }{
		{http.MethodPost, "challengeinstances", ""},
		{http.MethodGet, "challengeinstances", ""},
		{http.MethodGet, "challengeinstances", "/{name}"},
		{http.MethodDelete, "challengeinstances", "/{name}"},
		{http.MethodGet, "challenges", ""},
		{http.MethodGet, "challenges", "/{name}"},
	} {
		handle := func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, call.kind) }
		mux.HandleFunc(call.method+" "+root+call.kind+call.name, handle)
		mux.HandleFunc(call.method+" "+root+"namespaces/{namespace}/"+call.kind+call.name, func(w http.ResponseWriter, r *http.Request) {
			if r.PathValue("namespace") != web.GrantFrom(r.Context()).Namespace {
				d.Fail(w, web.Failure{Status: http.StatusForbidden, Message: "the token is for another namespace"})
				return
			}
			handle(w, r)
		})
	}
}

// serve forwards a call to the API server. The namespace in the path comes from the token, never from the client. A query of the
// client goes on as it is: the API server applies its selectors within the namespace.
func (d *Endpoint) serve(w http.ResponseWriter, r *http.Request, kind string) {
	path := root + "namespaces/" + web.GrantFrom(r.Context()).Namespace + "/" + kind
	if name := r.PathValue("name"); name != "" {
		if len(validation.IsDNS1123Subdomain(name)) > 0 { // it becomes part of a path
			d.Fail(w, web.Failure{Status: http.StatusNotFound, Message: "there is no object with such a name"})
			return
		}
		path += "/" + name
	}
	copied := r.Clone(r.Context())
	copied.URL.Path, copied.URL.RawPath = path, ""
	if r.Method == http.MethodPost || r.Method == http.MethodDelete {
		copied.Body = http.MaxBytesReader(w, r.Body, web.MaxBody)
	}
	if r.Method == http.MethodGet { // it may be a watch
		w = ports.Stream(w)
	}
	d.proxy.ServeHTTP(w, copied)
}

// Owns implements web.Endpoint.
func (d *Endpoint) Owns(path string) bool { return strings.HasPrefix(path, "/apis/") }

// Token implements web.Endpoint.
func (d *Endpoint) Token(_ http.ResponseWriter, r *http.Request) (string, *http.Request, error) {
	return tokens.FromRequest(r), r, nil
}

// Fail implements web.Endpoint. It answers with a Status of Kubernetes, which its clients read.
func (d *Endpoint) Fail(w http.ResponseWriter, p web.Failure) {
	reason := map[int]metav1.StatusReason{
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusMethodNotAllowed: metav1.StatusReasonMethodNotAllowed,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusBadRequest: metav1.StatusReasonBadRequest,
		http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	}[p.Status]
	web.Write(w, p.Status, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(p.Status), Reason: reason, Message: p.Message,
	})
}
