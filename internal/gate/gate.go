package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/follow"
	"github.com/bergctf/berg-operator/internal/gate/frontend"
	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/status"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
	"github.com/bergctf/berg-operator/internal/kit/ports"
)

// Features of the Gateway API that the gate claims, in the order that the API wants.
var Features = []gatewayv1.FeatureName{
	"Gateway", "GatewayPort8080", "HTTPRoute", "HTTPRoute303RedirectStatusCode", "HTTPRoute307RedirectStatusCode", "HTTPRoute308RedirectStatusCode",
	"HTTPRouteBackendProtocolH2C", "HTTPRouteBackendProtocolWebSocket", "HTTPRouteBackendRequestHeaderModification", "HTTPRouteMethodMatching",
	"HTTPRouteParentRefPort", "HTTPRoutePortRedirect", "HTTPRouteQueryParamMatching", "HTTPRouteRequestTimeout", "HTTPRouteResponseHeaderModification",
	"HTTPRouteSchemeRedirect", "ReferenceGrant", "TLSRoute", "TLSRouteModeMixed", "TLSRouteModeTerminate",
}

// Run serves Gateways until ctx is done.
func Run(ctx context.Context, rc *rest.Config, config Config) error {
	mgr, err := ctrl.NewManager(rc, ctrl.Options{
		Scheme: follow.Scheme(), Cache: follow.CacheOptions(),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
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
	state := newState(table, config)
	state.Preferred = config.GatewayNamespace
	metrics.Registry.(prometheus.Registerer).MustRegister(state)
	writer := status.NewWriter(mgr.GetClient(), state, controller)
	for _, feature := range Features {
		writer.Features = append(writer.Features, gatewayv1.SupportedFeature{Name: feature})
	}
	if err := metrics.Registry.Register(state.Usage); err != nil {
		return fmt.Errorf("register the metrics: %w", err)
	}
	certificates := follow.NewCertificates(clientset, state)
	synced, err := follow.Watch(ctx, mgr.GetCache(), state, endpoints)
	if err != nil {
		return fmt.Errorf("watch the cluster: %w", err)
	}
	dialer := upstream.NewDialer(endpoints)
	front, err := newFrontend(table, dialer, config)
	if err != nil {
		return err
	}
	lead := func(ctx context.Context) error { writer.Lead(ctx); return nil }
	if config.LeaderElection {
		lock, err := newLock(rc, config)
		if err != nil {
			return err
		}
		lead = func(ctx context.Context) error { return elect(ctx, lock, renewDeadline, writer.Lead) }
	}
	for _, part := range []manager.RunnableFunc{
		lead,
		func(ctx context.Context) error { writer.Start(ctx); return nil },
		func(ctx context.Context) error { certificates.Run(ctx); return nil },
		func(ctx context.Context) error {
			handler := adminHandler(table, dialer, state.Usage, append(slices.Clip(synced), state.CertificatesKnown))
			return serveAdmin(ctx, config.AdminBindAddress, handler, slog.New(logr.ToSlogHandler(ctrl.Log)))
		},
		func(ctx context.Context) error {
			// The ports are opened only now: a client of a replica that does not listen yet is sent to another one.
			if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
				return nil
			}
			return servePorts(ctx, front, config)
		},
	} {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("prepare to serve: %w", err)
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func newFrontend(table *routing.Table, dialer *upstream.Dialer, config Config) (*frontend.Frontend, error) {
	options := frontend.Options{
		Limits:          frontend.Limits{Total: config.MaxConnections, Address: config.AddressConnections, Host: config.HostConnections, Rate: config.AddressRate << 20, Requests: config.AddressRequests},
		RedirectToHTTPS: config.RedirectToHTTPS, Drain: config.Drain,
	}
	for _, prefix := range config.TrustedProxies {
		options.TrustedProxies = append(options.TrustedProxies, prefix.String())
	}
	front, err := frontend.New(table, dialer, options, frontend.NewMetrics(metrics.Registry.(prometheus.Registerer)))
	if err != nil {
		return nil, fmt.Errorf("prepare to serve: %w", err)
	}
	return front, nil
}

// servePorts serves all ports of all addresses until ctx is done, or until one fails. The listeners outlive no error of another
// port: a replica that serves a part of its ports would be ready and refuse players.
func servePorts(ctx context.Context, front *frontend.Frontend, config Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(config.Services)*len(config.Ports))
	for i := range config.Services {
		for j, number := range config.Ports {
			address := net.JoinHostPort(config.BindHost, strconv.Itoa(config.podPort(i, j)))
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err != nil {
				return fmt.Errorf("listen at %s for port %d: %w", address, number, err)
			}
			go func() { ended <- front.Serve(ctx, routing.Port{Address: i, Number: number}, listener) }()
		}
	}
	var failed []error
	for range cap(ended) {
		if err := <-ended; err != nil {
			failed = append(failed, err)
			cancel()
		}
	}
	return errors.Join(failed...)
}

// newState returns a State with the addresses of the setting, or with those of the Services.
func newState(table *routing.Table, config Config) *follow.State {
	var services []types.NamespacedName
	for _, name := range config.Services {
		services = append(services, types.NamespacedName{Namespace: config.Namespace, Name: name})
	}
	if len(config.Addresses) == 0 {
		return follow.NewState(table, gatewayv1.GatewayController(config.Controller), config.Ports, services)
	}
	state := follow.NewState(table, gatewayv1.GatewayController(config.Controller), config.Ports, nil)
	var addresses []gatewayv1.GatewayStatusAddress
	for _, value := range config.Addresses {
		addresses = append(addresses, gatewayv1.GatewayStatusAddress{Type: ptr.To(gatewayv1.IPAddressType), Value: value})
	}
	state.SetAddresses(addresses)
	return state
}

// serveAdmin serves metrics, health, what is served and how it is used until ctx is done.
func serveAdmin(ctx context.Context, address string, handler http.Handler, log *slog.Logger) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("ADMIN_BIND_ADDRESS: %w", err)
	}
	server, listener := ports.NewServer(listener, ports.Options{Handler: handler, Anonymous: true, KeepAlive: true, Log: log.With("port", "admin")})
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", address, err)
	}
	return nil
}
