package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/bergctf/berg-operator/internal/kit/connection"
	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/platform/challmanager"
	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/internal/platform/livepage"
	"github.com/bergctf/berg-operator/internal/platform/neutral"
	"github.com/bergctf/berg-operator/internal/platform/rctf"
	"github.com/bergctf/berg-operator/internal/platform/scope"
	"github.com/bergctf/berg-operator/internal/platform/tokens"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

const (
	// maxUntrusted and maxUntrustedBytes bound what clients without a token cost: about as much memory as an API without
	// work takes.
	maxUntrusted, maxUntrustedBytes = 1024, 4 << 20
	// Requests with a wrong token that one address may send in a second, and in a burst. The limits of right tokens are
	// others, so that guesses keep no platform waiting.
	wrongTokens, wrongTokensBurst = 10, 100
)

// Server is the API of one replica.
type Server struct {
	config  Config
	log     *slog.Logger
	clock   clock.WithTicker
	store   *instances.Store
	secrets cache.Cache
	tokens  tokens.Store
	limits  *limits
	wrong   *ports.Rates
	misused rate.Sometimes
	metrics *metrics
	handler http.Handler
	synced  chan struct{}
	board   *livepage.Board
	drain   drain
	// livePageWanted is closed when the Secret first has a token for the live page. The watches of the page start then.
	livePageWanted chan struct{}
	wantLivePage   func()
}

// New returns a Server for a cluster. It connects to nothing. Follow fills the caches, and Run serves.
func New(rc *rest.Config, config Config, now clock.WithTicker, log *slog.Logger) (*Server, error) {
	s := &Server{
		config: config, log: log, clock: now,
		limits: newLimits(config.Rate, config.SourceRate), synced: make(chan struct{}),
		wrong: ports.NewRates(wrongTokens, wrongTokensBurst), misused: rate.Sometimes{Interval: time.Minute},
	}
	s.metrics = newMetrics()
	rc = connection.Configure(rc)
	s.livePageWanted = make(chan struct{})
	s.wantLivePage = sync.OnceFunc(func() { close(s.livePageWanted) })
	var err error
	s.store, err = instances.New(rc, instances.Options{
		Namespaces: config.Namespaces, BootWait: config.BootWait, ReadWait: config.ReadWait,
		Allow: func(source string) bool { return s.limits.write(now.Now(), source) }, Clock: now, Log: log,
	})
	if err != nil {
		return nil, err
	}
	s.secrets, err = cache.New(rc, cache.Options{
		Scheme: instances.Scheme(), DefaultNamespaces: map[string]cache.Config{config.TokenNamespace: {}},
		DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", config.TokenSecret),
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of tokens: %w", err)
	}
	berg, err := scope.New(rc, log)
	if err != nil {
		return nil, err
	}
	wall := config.LivePage
	wall.Namespaces, wall.Operator.Namespace = config.Namespaces, config.TokenNamespace
	if s.board, err = livepage.NewBoard(rc, s.store, wall, now); err != nil {
		return nil, err
	}
	page, err := livepage.New(s.board, now, heartbeat, log)
	if err != nil {
		return nil, fmt.Errorf("read the live page: %w", err)
	}
	s.handler = s.routes(map[string]web.Endpoint{
		tokens.EndpointChallManager: &challmanager.Endpoint{
			Store: s.store, BootWait: config.BootWait, ReadWait: config.ReadWait,
			IgnoreAdditional: config.AdditionalPolicy == AdditionalIgnore, Log: log,
		},
		tokens.EndpointRCTF: &rctf.Endpoint{Store: s.store, Clock: now, Log: log},
		tokens.EndpointBerg: berg,
		tokens.EndpointV1:   &neutral.Endpoint{Store: s.store, BootWait: config.BootWait, Heartbeat: heartbeat, Log: log},
		// Checks, nodes, events and records are only read if a token opens the page.
		tokens.EndpointLivePage: page,
	})
	return s, nil
}

// heartbeat is how often a stream without events gets a comment: less than the idle time of common proxies.
const heartbeat = 15 * time.Second

// routes puts tokens and limits before each endpoint.
func (s *Server) routes(endpoints map[string]web.Endpoint) http.Handler {
	type endpointMux struct {
		name string
		web.Endpoint
		mux *http.ServeMux
	}
	var all []endpointMux
	for _, name := range tokens.Endpoints {
		mux := http.NewServeMux()
		endpoints[name].Routes(mux)
		all = append(all, endpointMux{name, endpoints[name], mux})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, e := range all {
			if !e.Owns(r.URL.Path) {
				continue
			}
			started := s.clock.Now()
			recorded := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
			route := s.serve(e.name, e.Endpoint, e.mux, recorded, r) //nolint:contextcheck // the request has it
			s.metrics.served(e.name, route, recorded.status, s.clock.Since(started))
			return
		}
		ports.Refuse(w, r)
		web.Write(w, http.StatusNotFound, map[string]string{"message": "there is no such path: docs/platform-api.md lists the endpoints"})
	})
}

// serve answers a request through an endpoint, and returns the pattern that it matched. A client without a valid token
// costs one lookup, and its connection ends. A token is valid for one endpoint only. The order matters: until the token is known,
// nothing but its lookup is done for the client, and the body is read only after the limits.
func (s *Server) serve(name string, endpoint web.Endpoint, mux *http.ServeMux, w http.ResponseWriter, r *http.Request) string {
	token, r, err := endpoint.Token(w, r)
	if err != nil {
		p, _ := web.NewFailure(err)
		ports.Refuse(w, r)
		endpoint.Fail(w, p)
		return refused
	}
	grant, known := s.tokens.Find(token)
	if !known || grant.Endpoint != name {
		if known { // only the log says so: the answer must not confirm a token to a client that guesses
			s.misused.Do(func() {
				s.log.Warn("a token was refused because it is for another endpoint", "key", grant.Name, "endpoint", grant.Endpoint, "used at", name)
			})
		}
		ports.Refuse(w, r)
		endpoint.Fail(w, s.refusal(w, r))
		return refused
	}
	// From here on the connection counts as one of a platform.
	ports.Trust(r.Context())
	if !s.limits.request(s.clock.Now()) {
		w.Header().Set("Retry-After", "1")
		endpoint.Fail(w, web.Failure{Status: http.StatusTooManyRequests, Message: "there are too many requests: try again in a second"})
		return refused
	}
	if r, err = web.Receive(w, r); err != nil {
		p, _ := web.NewFailure(err)
		ports.Refuse(w, r)
		endpoint.Fail(w, p)
		return refused
	}
	_, pattern := mux.Handler(r)
	if pattern == "" {
		status := http.StatusNotFound
		if allowed(mux, r) {
			status = http.StatusMethodNotAllowed
		}
		endpoint.Fail(w, web.Failure{Status: status, Message: "there is no such call: " + r.Method})
		return refused
	}
	mux.ServeHTTP(w, r.WithContext(web.WithGrant(r.Context(), grant)))
	return pattern
}

// refusal is the answer to a wrong token.
func (s *Server) refusal(w http.ResponseWriter, r *http.Request) web.Failure {
	if !s.wrong.Allow(s.clock.Now(), r) {
		w.Header().Set("Retry-After", "1")
		return web.Failure{Status: http.StatusTooManyRequests, Message: "there are too many requests with a wrong token from this address: correct the token"}
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="berg-api"`)
	return web.Failure{
		Status:  http.StatusUnauthorized,
		Message: "the token is not valid for this endpoint: compare token and endpoint with the Secret " + s.config.TokenSecret,
	}
}

// allowed reports whether a path exists with another method.
func allowed(mux *http.ServeMux, r *http.Request) bool {
	copied := r.Clone(r.Context())
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		copied.Method = method
		if _, pattern := mux.Handler(copied); pattern != "" {
			return true
		}
	}
	return false
}

// Handler serves the API.
func (s *Server) Handler() http.Handler { return s.handler }

// Ready reports whether the caches are complete, so that answers are right, and the replica does not stop.
func (s *Server) Ready() bool {
	select {
	case <-s.synced:
		return !s.drain.begun.Load()
	default:
		return false
	}
}

// Follow fills the caches, and keeps tokens current, until ctx is done. A deleted Secret makes every token invalid
// immediately. The watches of the live page start with its first token, and go on when that token is removed.
func (s *Server) Follow(ctx context.Context) error {
	informer, err := s.secrets.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the Secret %s: %w", s.config.TokenSecret, err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    s.readTokens,
		UpdateFunc: func(_, object any) { s.readTokens(object) },
		DeleteFunc: func(any) {
			s.tokens.Replace(&tokens.Set{})
			s.log.Warn("the Secret with the tokens is gone: no token is valid", "secret", s.config.TokenSecret)
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, start := range []func(context.Context) error{s.store.Start, s.secrets.Start} {
		running.Go(func() {
			if err := start(ctx); err != nil {
				cancel(err)
			}
		})
	}
	running.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-s.livePageWanted:
		}
		if err := s.board.Start(ctx); err != nil {
			cancel(err)
		}
	})
	if s.store.Synced(ctx) && s.secrets.WaitForCacheSync(ctx) {
		close(s.synced)
	}
	<-ctx.Done()
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// readTokens replaces all tokens by the valid ones of the Secret. A token that is removed from the Secret loses its
// rights with the next request; an open stream goes on. All tokens are replaced in one step, so a request never sees a part of a
// new Secret.
func (s *Server) readTokens(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Name != s.config.TokenSecret || secret.Namespace != s.config.TokenNamespace {
		return
	}
	set, err := tokens.Parse(secret.Data, s.config.Namespaces[0], s.config.Namespaces)
	if err != nil {
		s.log.Error("tokens are wrong, and are not valid", "secret", secret.Name, "error", err)
	}
	s.tokens.Replace(set)
	if set.Opens(tokens.EndpointLivePage) {
		s.wantLivePage()
	}
	s.metrics.tokens.Set(float64(set.Len()))
	s.log.Info("tokens were read", "secret", secret.Name, "count", set.Len())
}

// Run serves until ctx is done, and then drains. The drain has an order: not ready, no new connections, the last answers, and
// only then the caches.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	listener, err := net.Listen("tcp", s.config.BindAddress)
	if err != nil {
		return fmt.Errorf("BIND_ADDRESS: %w", err)
	}
	telemetry, err := net.Listen("tcp", s.config.MetricsBindAddress)
	if err != nil {
		return errors.Join(fmt.Errorf("METRICS_BIND_ADDRESS: %w", err), listener.Close())
	}
	var secure *tls.Config
	var watcher *certwatcher.CertWatcher
	if s.config.CertDir != "" {
		if watcher, err = certwatcher.New(filepath.Join(s.config.CertDir, "tls.crt"), filepath.Join(s.config.CertDir, "tls.key")); err != nil {
			return errors.Join(fmt.Errorf("CERT_DIR: %w", err), listener.Close(), telemetry.Close())
		}
		secure = &tls.Config{GetCertificate: watcher.GetCertificate, MinVersion: tls.VersionTLS12}
	}
	api, listener := ports.NewServer(netutil.LimitListener(listener, s.config.MaxConnections), s.config.port(s.drain.closing(s.handler), secure, s.log))
	health, telemetry := ports.NewServer(telemetry, healthPort(s.metrics.registry, s.Ready, s.log))
	var running sync.WaitGroup
	start := func(serve func() error) {
		running.Go(func() {
			if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				cancel(err)
			}
		})
	}
	if watcher != nil {
		start(func() error { return watcher.Start(ctx) })
	}
	follow, stopFollowing := context.WithCancel(context.WithoutCancel(ctx)) // answers that are being given still need the caches
	defer stopFollowing()
	start(func() error { return s.Follow(follow) })
	start(func() error { return api.Serve(listener) })
	start(func() error { return health.Serve(telemetry) })
	s.log.Info("the API is served", "address", listener.Addr().String(), "tls", s.config.CertDir != "")
	<-ctx.Done()
	s.drain.stop(api, s.clock, s.config.BootWait) //nolint:contextcheck // it outlasts the context
	stopFollowing()
	_ = health.Close()
	running.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// port returns the options of the API's port.
func (c *Config) port(handler http.Handler, secure *tls.Config, log *slog.Logger) ports.Options {
	perAddress := c.AddressConnections
	if perAddress == 0 {
		perAddress = max(c.MaxConnections/2, 1)
	}
	return ports.Options{
		Handler: handler, TLS: secure, KeepAlive: true, Log: log.With("port", "api"),
		AnswerTime: ports.AnswerTime + c.BootWait + c.ReadWait,
		Limits:     ports.Limits{Untrusted: min(maxUntrusted, max(c.MaxConnections/4, 1)), Address: perAddress, Bytes: maxUntrustedBytes},
	}
}

// healthPort returns the options of the port of metrics and health.
func healthPort(metrics prometheus.Gatherer, isReady func() bool, log *slog.Logger) ports.Options {
	return ports.Options{Handler: healthHandler(metrics, isReady), Anonymous: true, Log: log.With("port", "metrics")}
}

func healthHandler(metrics prometheus.Gatherer, isReady func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", ports.NewMetricsHandler(metrics))
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !isReady() {
			http.Error(w, "the caches are not complete yet, or the replica stops", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// statusRecorder remembers the status of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the writer.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush lets a proxy stream.
func (r *statusRecorder) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

// metrics of the API.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	tokens   prometheus.Gauge
}

// refused is the route of a request that reached no call.
const refused = "refused"

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "berg_api_requests_total", Help: "Requests of platforms, by endpoint, call and HTTP status.",
		}, []string{"endpoint", "call", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "berg_api_request_duration_seconds", Help: "How long answers to platforms took. That to a start waits until the instance runs.",
			Buckets: []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 20, 45},
		}, []string{"endpoint", "call"}),
		tokens: prometheus.NewGauge(prometheus.GaugeOpts{Name: "berg_api_tokens", Help: "Tokens that are valid."}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.tokens)
	return m
}

func (m *metrics) served(endpoint, call string, status int, took time.Duration) {
	m.requests.WithLabelValues(endpoint, call, fmt.Sprint(status)).Inc()
	m.duration.WithLabelValues(endpoint, call).Observe(took.Seconds())
}
