package tunnelproxy

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// No label names a pair or a tunnel.
var (
	started = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_proxy_total",
		Help: "Pairs of proxies that the operator began to start.",
	})
	failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_proxy_failed_total",
		Help: "Pairs of proxies that became Failed, which is for ever.",
	})
	timeToRunning = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tunnel_proxy_time_to_running_seconds",
		Help:    "Time from the creation of a ContainerNetworkTunnelProxy until it was Running.",
		Buckets: []float64{0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
	})
	prepared = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_prepared_total",
		Help: "Tunnels that became Ready, or were prepared anew.",
	})
	unprepared = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_prepare_failures_total",
		Help: "Tunnels that became Failed, or failed for another reason than before.",
	})
	reconcileMetrics = reconcile.NewMetrics("tunnel_proxy", "Reconciliations of ContainerNetworkTunnelProxies that failed and are tried again.")
	perState         = gauge.NewPhases("tunnel_proxy", "ContainerNetworkTunnelProxies", tunnelv1.States, see)
)

func init() {
	metrics.Registry.MustRegister(started, failed, timeToRunning, prepared, unprepared, reconcileMetrics, perState)
}

func see(ctx context.Context, reader client.Reader) ([]gauge.Observation, error) {
	var all tunnelv1.ContainerNetworkTunnelProxyList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	observations := make([]gauge.Observation, len(all.Items))
	for i := range all.Items {
		p := &all.Items[i]
		observations[i] = gauge.Observation{Phase: string(cmp.Or(p.Status.State, tunnelv1.StatePending)), Since: since(p)}
	}
	return observations, nil
}

// since is when a pair came into its state, as far as its conditions tell: the last of them
// that moved.
func since(p *tunnelv1.ContainerNetworkTunnelProxy) time.Time {
	at := p.CreationTimestamp.Time
	for _, c := range p.Status.Conditions {
		if c.Type != tunnelv1.ConditionTunnelsReady && c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}
