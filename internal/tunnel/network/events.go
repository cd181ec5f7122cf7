package network

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
)

// report records that a network started to run.
func (r *Reconciler) report(_ context.Context, before, n *tunnelv1.ContainerNetwork, _ Observed, _ outcome.Problems, _ time.Time) {
	if before.Status.State == tunnelv1.NetworkRunning || n.Status.State != tunnelv1.NetworkRunning {
		return
	}
	if before.Status.State == "" || before.Status.State == tunnelv1.NetworkPending {
		timeToRunning.Observe(reconcile.Elapsed(n.CreationTimestamp.Time, r.Clock.Now()).Seconds())
	}
	reconcile.Normal(r.Events, n, tunnelv1.ReasonNetworkReady, actionCreate, n.Status.Message)
}

// The only label is the phase, which is the state. No label names a network.
var (
	timeToRunning = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tunnel_network_time_to_running_seconds",
		Help:    "Time from the creation of a ContainerNetwork until it was Running.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300},
	})
	reconcileMetrics = reconcile.NewMetrics("tunnel_network", "Reconciliations of ContainerNetworks that failed and are retried.")
	perState         = gauge.NewPhases("tunnel_network", "ContainerNetworks", tunnelv1.NetworkStates,
		gauge.Each(func() client.ObjectList { return &tunnelv1.ContainerNetworkList{} }, inState))
)

func init() { metrics.Registry.MustRegister(timeToRunning, reconcileMetrics, perState) }

func inState(n *tunnelv1.ContainerNetwork) gauge.Observation {
	return gauge.InPhase(n, cmp.Or(n.Status.State, tunnelv1.NetworkPending), n.Status.Conditions)
}
