package tunnelproxy

import (
	"cmp"

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
		Help: "Proxy pairs that the operator began to start.",
	})
	failed = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_proxy_failed_total",
		Help: "Proxy pairs that reached the terminal state Failed.",
	})
	timeToRunning = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tunnel_proxy_time_to_running_seconds",
		Help:    "Time from the creation of a ContainerNetworkTunnelProxy until it was Running.",
		Buckets: []float64{0.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
	})
	prepared = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_prepared_total",
		Help: "Tunnels that became Ready, or were prepared again.",
	})
	unprepared = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tunnel_prepare_failures_total",
		Help: "Tunnels that became Failed, or failed for another reason than before.",
	})
	reconcileMetrics = reconcile.NewMetrics("tunnel_proxy", "Reconciliations of ContainerNetworkTunnelProxies that failed and are retried.")
	perState         = gauge.NewPhases("tunnel_proxy", "ContainerNetworkTunnelProxies", tunnelv1.States,
		gauge.Each(func() client.ObjectList { return &tunnelv1.ContainerNetworkTunnelProxyList{} }, inState))
)

func init() {
	metrics.Registry.MustRegister(started, failed, timeToRunning, prepared, unprepared, reconcileMetrics, perState)
}

// inState counts from the last transition of any condition except TunnelsReady: each state before Running has a
// condition of its own.
func inState(p *tunnelv1.ContainerNetworkTunnelProxy) gauge.Observation {
	o := gauge.Observation{Phase: string(cmp.Or(p.Status.State, tunnelv1.StatePending)), Since: p.CreationTimestamp.Time}
	for _, c := range p.Status.Conditions {
		switch c.Type {
		case tunnelv1.ConditionNetworkReady, tunnelv1.ConditionImageReady, tunnelv1.ConditionProxiesReady:
			if c.LastTransitionTime.After(o.Since) {
				o.Since = c.LastTransitionTime.Time
			}
		}
	}
	return o
}
