package operator

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/authority"
	"github.com/bergctf/berg-operator/internal/kit/ports"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// shutdownTime is how long the process may take to stop: the time for running
// reconciliations, and a little more. The Deployment's terminationGracePeriodSeconds
// must be longer.
const shutdownTime = reconcile.DrainTime + 5*time.Second

// The paths of the probes.
const (
	livePath  = "/healthz"
	readyPath = "/readyz"
)

// servePorts adds the servers of metrics, probes and profiles to the manager, in place of the servers of controller-runtime,
// which have no limits.
func servePorts(mgr ctrl.Manager, probes http.Handler, process config.Process) error {
	if err := servePort(mgr, "probes", process.HealthProbeBindAddress, ports.Options{Handler: probes, Anonymous: true}); err != nil {
		return err
	}
	if err := servePort(mgr, "profiles", process.PprofBindAddress, ports.Options{Handler: profiles(), Anonymous: true}); err != nil {
		return err
	}
	if process.MetricsBindAddress == "0" {
		return nil
	}
	mux := http.NewServeMux()
	options := ports.Options{Handler: mux}
	handler := ports.NewMetricsHandler(metrics.Registry)
	if !process.MetricsSecure {
		options.Anonymous = true
		mux.Handle("/metrics", handler)
		return servePort(mgr, "metrics", process.MetricsBindAddress, options)
	}
	checked, err := authenticated(mgr.GetConfig(), mgr.GetHTTPClient(), ctrl.Log.WithName("metrics"), handler)
	if err != nil {
		return fmt.Errorf("set up the check of tokens for metrics: %w", err)
	}
	mux.Handle("/metrics", checked)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		ports.Refuse(w, r)
		http.NotFound(w, r)
	})
	// It encrypts only. Scrapers are known by their tokens.
	pair, err := newMetricsCertificate()
	if err != nil {
		return fmt.Errorf("make the certificate for metrics: %w", err)
	}
	options.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	return servePort(mgr, "metrics", process.MetricsBindAddress, options)
}

// newMetricsCertificate returns a certificate that only encrypts, with a key whose handshakes take little time.
func newMetricsCertificate() (tls.Certificate, error) {
	const validity = 10 * 365 * 24 * time.Hour
	now := time.Now()
	own, err := authority.New(pkix.Name{CommonName: "berg-operator metrics"}, now, validity)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := own.Issue(authority.Leaf{
		Subject: pkix.Name{CommonName: "localhost"}, Names: []string{"localhost"}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now, validity)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Certificate, pair.Key)
}

// ServeProbes adds a server of probes to a manager of another program than the operator's.
func ServeProbes(mgr ctrl.Manager, address string, ready healthz.Checker) error {
	all := checks{live: map[string]healthz.Checker{"ping": healthz.Ping}, ready: map[string]healthz.Checker{"ready": ready}}
	return servePort(mgr, "probes", address, ports.Options{Handler: all.handler(), Anonymous: true})
}

// servePort listens, and adds a server to the manager that serves until the manager stops. Without an address it does nothing. It
// listens here and not in Start: an address that is in use ends the process before it competes for the lease.
func servePort(mgr ctrl.Manager, name, address string, options ports.Options) error {
	if address == "" || address == "0" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve the %s: %w", name, err)
	}
	options.Log = portLog(mgr.GetLogger(), name)
	server, listener := ports.NewServer(listener, options)
	return mgr.Add(&manager.Server{Name: name, Server: server, Listener: listener, ShutdownTimeout: ptr.To(shutdownTime)})
}

// portLog returns the log of a port.
func portLog(log logr.Logger, name string) *slog.Logger {
	return slog.New(logr.ToSlogHandler(log)).With("port", name)
}

// checks are the checks that the probes report.
type checks struct{ live, ready map[string]healthz.Checker }

func (c checks) handler() http.Handler {
	mux := http.NewServeMux()
	for path, all := range map[string]map[string]healthz.Checker{livePath: c.live, readyPath: c.ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: all})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return mux
}

// profiles serves what net/http/pprof has.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
