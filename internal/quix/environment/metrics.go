package environment

import (
	"cmp"
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The only label is the phase: never an Environment.
var (
	created = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quix_environment_total",
		Help: "Environments that the operator began to make.",
	})
	timeToReady = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "quix_environment_time_to_ready_seconds",
		Help:    "Time from the creation of an Environment until it was ready, of those that were ready at the first attempt.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300},
	})
	reconcileMetrics = reconcile.NewMetrics("quix_environment", "Reconciliations that failed and are tried again.")
	unbound          = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quix_environment_unbound_total",
		Help: "Role bindings that were deleted because their ClusterRole must not be bound.",
	})
	perPhase = gauge.NewPhases("quix_environment", "Environments", quixv1.Phases, seeEnvironments)
)

func init() {
	metrics.Registry.MustRegister(created, timeToReady, reconcileMetrics, unbound, perPhase)
}

func seeEnvironments(ctx context.Context, reader client.Reader) ([]gauge.Observation, error) {
	var environments quixv1.EnvironmentList
	if err := reader.List(ctx, &environments, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	observations := make([]gauge.Observation, len(environments.Items))
	for i := range environments.Items {
		observations[i] = seen(&environments.Items[i])
	}
	return observations, nil
}

func seen(env *quixv1.Environment) gauge.Observation {
	since := env.CreationTimestamp.Time
	// A status keeps no time for each phase: what is not ready counts from when it
	// became so, or was first looked at.
	if c := meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionReady); c != nil {
		since = c.LastTransitionTime.Time
	}
	if env.DeletionTimestamp != nil {
		since = env.DeletionTimestamp.Time
	}
	return gauge.Observation{Phase: string(cmp.Or(env.Status.Phase, quixv1.PhaseInProgress)), Since: since}
}
