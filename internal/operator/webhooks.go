package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientadmissionv1 "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/family"
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
	server, err := newWebhookServer(process, families)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(process.WebhookCertDir, "tls.crt")); err == nil {
		server.options.CertDir = process.WebhookCertDir
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
	server.options.TLSOpts = append(server.options.TLSOpts, func(c *tls.Config) { c.GetCertificate = certificates.certificate })
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

// webhookServer serves once it is opened.
type webhookServer struct {
	options  webhook.Options
	handlers map[string]http.Handler
	// needed: a family that is enabled has webhooks.
	needed bool
	once   sync.Once
	opened chan struct{}
	server webhook.Server
}

func newWebhookServer(process config.Process, families []servedFamily) (*webhookServer, error) {
	host, text, err := net.SplitHostPort(process.WebhookBindAddress)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	s := &webhookServer{
		options: webhook.Options{Host: host, Port: port, WebhookMux: http.NewServeMux(), TLSOpts: []func(*tls.Config){
			// HTTP/2 is disabled because of its denial-of-service vulnerabilities.
			func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} },
		}},
		handlers: map[string]http.Handler{"/": &admission.Webhook{Handler: admission.HandlerFunc(admit)}},
		opened:   make(chan struct{}),
	}
	for _, f := range families {
		for _, w := range f.Webhooks {
			s.needed = true
			s.handlers[w.Path] = w.Handler(f.dependencies)
		}
	}
	return s, nil
}

// admit is for objects of families that are not enabled.
func admit(context.Context, admission.Request) admission.Response { return admission.Allowed("") }

func (s *webhookServer) addTo(m dependencyBuilder) error {
	s.server = webhook.NewServer(s.options)
	for path, handler := range s.handlers {
		s.server.Register(path, handler)
	}
	if err := m.mgr.AddReadyzCheck("webhooks", s.ready); err != nil {
		return err
	}
	return m.mgr.Add(s)
}

// open lets the server start. It may be called more than once.
func (s *webhookServer) open() { s.once.Do(func() { close(s.opened) }) }

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers.
func (s *webhookServer) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s *webhookServer) Start(ctx context.Context) error {
	select {
	case <-s.opened:
		return s.server.Start(ctx)
	case <-ctx.Done():
		return nil
	}
}

// ready reports whether a server that has to answer does so.
func (s *webhookServer) ready(r *http.Request) error {
	select {
	case <-s.opened:
		if s.server.StartedChecker()(r) != nil {
			return errors.New("the webhooks are not served yet")
		}
	default:
	}
	return nil
}
