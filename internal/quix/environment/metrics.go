package environment

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
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
	reconciles = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "quix_environment_reconcile_duration_seconds",
		Help:    "Time that one reconciliation took.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
	})
	reconcileErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quix_environment_reconcile_errors_total",
		Help: "Reconciliations that failed and are tried again.",
	})
	unbound = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quix_environment_unbound_total",
		Help: "Role bindings that were deleted because their ClusterRole must not be bound.",
	})
	active = gauge.New("quix_environment_active", "Environments that exist, by phase.", "phase", countPhases)
)

func init() {
	metrics.Registry.MustRegister(created, timeToReady, reconciles, reconcileErrors, unbound, active)
}

func observeReconcile(took time.Duration, failed error) {
	reconciles.Observe(took.Seconds())
	if failed != nil {
		reconcileErrors.Inc()
	}
}

func countPhases(ctx context.Context, reader client.Reader) (map[string]int, error) {
	counts := make(map[string]int, len(quixv1.Phases))
	for _, phase := range quixv1.Phases {
		counts[string(phase)] = 0
	}
	var environments quixv1.EnvironmentList
	if err := reader.List(ctx, &environments, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range environments.Items {
		phase := environments.Items[i].Status.Phase
		if phase == "" {
			phase = quixv1.PhaseInProgress
		}
		counts[string(phase)]++
	}
	return counts, nil
}
