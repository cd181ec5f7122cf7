package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/follow"
	"github.com/bergctf/berg-operator/internal/gate/frontend"
	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/status"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
)

// Features of the Gateway API that the gate claims, in the order that the API wants.
var Features = []gatewayv1.FeatureName{
	"Gateway", "GatewayPort8080", "HTTPRoute", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification", "HTTPRouteMethodMatching",
	"HTTPRouteParentRefPort", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestTimeout", "HTTPRouteResponseHeaderModification",
	"HTTPRouteSchemeRedirect", "ReferenceGrant", "TLSRoute", "TLSRouteModeMixed", "TLSRouteModeTerminate",
}

// Run serves Gateways until ctx is done.
func Run(ctx context.Context, rc *rest.Config, config Config, log *slog.Logger) error {
	mgr, err := ctrl.NewManager(rc, ctrl.Options{
		Scheme: follow.Scheme(), Cache: follow.CacheOptions(),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		LeaderElection: config.LeaderElection, LeaderElectionID: config.LeaseName, LeaderElectionNamespace: config.Namespace, LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout: ptr.To(config.Drain + time.Second),
	})
	if err != nil {
		return fmt.Errorf("prepare the connection to the cluster: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return fmt.Errorf("prepare the connection to the cluster: %w", err)
	}
	table, endpoints := routing.NewTable(), upstream.NewEndpoints()
	controller := gatewayv1.GatewayController(config.Controller)
	state := follow.NewState(table, controller, config.Ports)
	writer := status.NewWriter(mgr.GetClient(), state, controller)
	writer.Addresses = func(ctx context.Context) ([]gatewayv1.GatewayStatusAddress, error) { return addresses(ctx, mgr.GetAPIReader(), config) }
	for _, feature := range Features {
		writer.Features = append(writer.Features, gatewayv1.SupportedFeature{Name: feature})
	}
	certificates := follow.NewCertificates(clientset, state)
	synced, err := follow.Watch(ctx, mgr.GetCache(), state, endpoints)
	if err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	dialer := upstream.NewDialer(endpoints)
	front, err := newFrontend(table, dialer, config, log)
	if err != nil {
		return err
	}
	for _, runnable := range []manager.Runnable{
		writer,
		everywhere(func(ctx context.Context) error { certificates.Run(ctx); return nil }),
		everywhere(func(ctx context.Context) error { return serveAdmin(ctx, config.AdminBindAddress, table, dialer, synced) }),
		everywhere(func(ctx context.Context) error {
			if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
				return nil
			}
			return servePorts(ctx, front, config)
		}),
	} {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("prepare to serve: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// everywhere is a part that runs in each replica, not in the leader alone.
type everywhere func(context.Context) error

// Start runs the part.
func (e everywhere) Start(ctx context.Context) error { return e(ctx) }

// NeedLeaderElection is false.
func (e everywhere) NeedLeaderElection() bool { return false }

func newFrontend(table *routing.Table, dialer *upstream.Dialer, config Config, log *slog.Logger) (*frontend.Frontend, error) {
	options := frontend.Options{
		Limits:          frontend.Limits{Total: config.MaxConnections, Address: config.AddressConnections, Host: config.HostConnections},
		RedirectToHTTPS: config.RedirectToHTTPS, Drain: config.Drain,
	}
	for _, prefix := range config.TrustedProxies {
		options.TrustedProxies = append(options.TrustedProxies, prefix.String())
	}
	front, err := frontend.New(table, dialer, options, frontend.NewMetrics(metrics.Registry.(prometheus.Registerer)), log)
	if err != nil {
		return nil, fmt.Errorf("prepare to serve: %w", err)
	}
	return front, nil
}

// servePorts serves all ports until ctx is done, or until one fails.
func servePorts(ctx context.Context, front *frontend.Frontend, config Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(config.Ports))
	for _, port := range config.Ports {
		address := net.JoinHostPort(config.BindHost, strconv.Itoa(int(port)+config.PortOffset))
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listen at %s for port %d: %w", address, port, err)
		}
		go func() { ended <- front.Serve(ctx, port, listener) }()
	}
	var failed []error
	for range config.Ports {
		if err := <-ended; err != nil {
			failed = append(failed, err)
			cancel()
		}
	}
	return errors.Join(failed...)
}

// addresses returns the addresses of Gateways: the setting's, or those of the Service.
func addresses(ctx context.Context, reader client.Reader, config Config) ([]gatewayv1.GatewayStatusAddress, error) {
	if len(config.Addresses) > 0 {
		return statusAddresses(gatewayv1.IPAddressType, config.Addresses), nil
	}
	service := &corev1.Service{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: config.Service}, service)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Service %s: %w", config.Service, err)
	}
	var ips, names []string
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			ips = append(ips, ingress.IP)
		} else {
			names = append(names, ingress.Hostname)
		}
	}
	switch {
	case len(ips)+len(names) > 0:
	case len(service.Spec.ExternalIPs) > 0:
		ips = service.Spec.ExternalIPs
	case service.Spec.ClusterIP != corev1.ClusterIPNone:
		ips = service.Spec.ClusterIPs
	}
	return append(statusAddresses(gatewayv1.IPAddressType, ips), statusAddresses(gatewayv1.HostnameAddressType, names)...), nil
}

func statusAddresses(kind gatewayv1.AddressType, values []string) []gatewayv1.GatewayStatusAddress {
	var out []gatewayv1.GatewayStatusAddress
	for _, value := range values {
		out = append(out, gatewayv1.GatewayStatusAddress{Type: ptr.To(kind), Value: value})
	}
	return out
}

const adminTime = 10 * time.Second

// serveAdmin serves metrics, health and what is served until ctx is done.
func serveAdmin(ctx context.Context, address string, table *routing.Table, dialer *upstream.Dialer, synced []toolscache.InformerSynced) error {
	server := &http.Server{Addr: address, Handler: adminHandler(table, dialer, synced), ReadTimeout: adminTime, WriteTimeout: adminTime, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", address, err)
	}
	return nil
}
