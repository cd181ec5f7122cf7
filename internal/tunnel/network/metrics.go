package network

import (
	"cmp"
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only label is the phase, which is the state: never a network.
var (
	timeToRunning = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tunnel_network_time_to_running_seconds",
		Help:    "Time from the creation of a ContainerNetwork until it was Running.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300},
	})
	reconcileMetrics = reconcile.NewMetrics("tunnel_network", "Reconciliations of ContainerNetworks that failed and are tried again.")
	perState         = gauge.NewPhases("tunnel_network", "ContainerNetworks", tunnelv1.NetworkStates, see)
)

func init() { metrics.Registry.MustRegister(timeToRunning, reconcileMetrics, perState) }

func see(ctx context.Context, reader client.Reader) ([]gauge.Observation, error) {
	var all tunnelv1.ContainerNetworkList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	observations := make([]gauge.Observation, len(all.Items))
	for i := range all.Items {
		n := &all.Items[i]
		since := n.CreationTimestamp.Time
		if c := meta.FindStatusCondition(n.Status.Conditions, tunnelv1.ConditionNamespaceReady); c != nil {
			since = c.LastTransitionTime.Time
		}
		observations[i] = gauge.Observation{Phase: string(cmp.Or(n.Status.State, tunnelv1.NetworkPending)), Since: since}
	}
	return observations, nil
}
