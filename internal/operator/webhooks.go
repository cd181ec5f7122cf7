package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientadmissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/family"
	"github.com/bergctf/berg-operator/internal/kit/ports"
)

// The names of the objects of the webhooks, as in the manifests. The Operator Lifecycle Manager
// creates its own.
const (
	// WebhookConfiguration is the ValidatingWebhookConfiguration.
	WebhookConfiguration = "berg-operator-webhooks"
	// webhookService is the Service of the webhooks, in the operator's namespace.
	webhookService = "berg-operator-webhook"
	// webhookSecret holds the certificate that the operator issues.
	webhookSecret = "berg-operator-webhook"
)

// servedFamily is a family that is set up.
type servedFamily struct {
	family.Family
	dependencies family.Dependencies
}

// serveWebhooks adds the webhooks of all families to the process. The server uses certificate files
// if they exist, else a certificate that the leader issues and all replicas use. Without either, no
// webhook is served, and only the status of an object reports violations.
func (m dependencyBuilder) serveWebhooks(ctx context.Context, process config.Process, families []servedFamily) error {
	if process.WebhookBindAddress == "0" {
		return nil
	}
	server := newWebhookServer(process, families, m.mgr.GetLogger())
	certificate, key := filepath.Join(process.WebhookCertDir, "tls.crt"), filepath.Join(process.WebhookCertDir, "tls.key")
	if _, err := os.Stat(certificate); err == nil {
		watcher, err := certwatcher.New(certificate, key)
		if err != nil {
			return fmt.Errorf("read the certificate of the webhooks: %w", err)
		}
		if err := m.mgr.Add(everyReplica{watcher}); err != nil {
			return err
		}
		// The files are another program's, such as cert-manager's: then nothing is issued, and the authority in the configuration
		// is that program's too.
		server.certificate = watcher.GetCertificate
		server.open()
		return server.addTo(m)
	}
	installed, err := m.webhooksInstalled(ctx)
	switch {
	case apierrors.IsForbidden(err) && server.needed:
		m.mgr.GetLogger().Info("the webhooks are not served: the operator has no rights to their configuration. Invalid objects are reported only in their status", "configuration", WebhookConfiguration)
		return nil
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return err
	case !installed && !server.needed:
		return nil
	}
	certificates, err := m.keepCertificate(ctx, process.Namespace, server.open)
	if err != nil {
		return err
	}
	server.certificate = certificates.certificate
	return server.addTo(m)
}

// webhooksInstalled reports whether the webhook configuration exists. The webhooks of disabled
// families must answer too: otherwise their objects would be rejected.
func (m dependencyBuilder) webhooksInstalled(ctx context.Context) (bool, error) {
	c, err := clientadmissionv1.NewForConfigAndClient(m.restConfig, m.mgr.GetHTTPClient())
	if err != nil {
		return false, err
	}
	_, err = c.ValidatingWebhookConfigurations().Get(ctx, WebhookConfiguration, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// everyReplica runs what does not need the lease.
type everyReplica struct{ manager.Runnable }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everyReplica) NeedLeaderElection() bool { return false }

// webhookServer serves once it is opened.
type webhookServer struct {
	address     string
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// handlers are those of webhook.Server, which counts and logs requests. It has no limits of connections, and does not serve.
	handlers webhook.Server
	log      *slog.Logger
	// needed: a family that is enabled has webhooks.
	needed bool
	once   sync.Once
	opened chan struct{}
	served atomic.Bool
}

// newWebhookServer always serves the path /, which admits everything. It is needed only if a family has a webhook.
func newWebhookServer(process config.Process, families []servedFamily, log logr.Logger) *webhookServer {
	s := &webhookServer{
		address: process.WebhookBindAddress, handlers: webhook.NewServer(webhook.Options{}), log: portLog(log, "webhooks"),
		opened: make(chan struct{}),
	}
	s.register("/", &admission.Webhook{Handler: admission.HandlerFunc(admit)})
	for _, f := range families {
		for _, w := range f.Webhooks {
			s.needed = true
			s.register(w.Path, w.Handler(f.dependencies))
		}
	}
	return s
}

// register lets a webhook log nothing about requests that are none: each client that reaches the port could fill the log.
func (s *webhookServer) register(path string, handler http.Handler) {
	if w, ok := handler.(*admission.Webhook); ok {
		w.LogConstructor = func(log logr.Logger, request *admission.Request) logr.Logger {
			if request == nil {
				return logr.Discard()
			}
			return admission.DefaultLogConstructor(log, request)
		}
	}
	s.handlers.Register(path, handler)
}

// admit is for objects of families that are not enabled.
func admit(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

func (s *webhookServer) addTo(m dependencyBuilder) error {
	if err := m.mgr.AddReadyzCheck("webhooks", s.ready); err != nil {
		return err
	}
	return m.mgr.Add(everyReplica{s})
}

// open lets the server start. It may be called more than once.
func (s *webhookServer) open() { s.once.Do(func() { close(s.opened) }) }

// Start implements manager.Runnable.
func (s *webhookServer) Start(ctx context.Context) error {
	select {
	case <-s.opened:
	case <-ctx.Done():
		return nil
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve the webhooks: %w", err)
	}
	server, listener := ports.NewServer(listener, ports.Options{
		Handler: s.handlers.WebhookMux(), TLS: &tls.Config{GetCertificate: s.certificate, MinVersion: tls.VersionTLS12},
		Anonymous: true, Log: s.log,
	})
	// Connections are accepted from here on, because the listener queues them.
	s.served.Store(true)
	return (&manager.Server{Name: "webhooks", Server: server, Listener: listener, ShutdownTimeout: ptr.To(shutdownTime)}).Start(ctx)
}

// ready reports whether a server that has to answer does so. A server that was never opened has no configuration that calls it,
// so it does not keep the process from being ready.
func (s *webhookServer) ready(*http.Request) error {
	select {
	case <-s.opened:
		if !s.served.Load() {
			return errors.New("the webhooks are not served yet")
		}
	default:
	}
	return nil
}
