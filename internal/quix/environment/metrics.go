package environment

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
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
		Help: "Environments that the operator started to create.",
	})
	timeToReady = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "quix_environment_time_to_ready_seconds",
		Help:    "Time from the creation of an Environment until it was ready, for those that were ready at the first attempt.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300},
	})
	reconcileMetrics = reconcile.NewMetrics("quix_environment", "Reconciliations that failed and are tried again.")
	unbound          = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quix_environment_unbound_total",
		Help: "Role bindings that were deleted because their ClusterRole must not be bound.",
	})
	perPhase = gauge.NewPhases("quix_environment", "Environments", quixv1.Phases,
		gauge.Each(func() client.ObjectList { return &quixv1.EnvironmentList{} }, inPhase))
)

func init() {
	metrics.Registry.MustRegister(created, timeToReady, reconcileMetrics, unbound, perPhase)
}

func inPhase(env *quixv1.Environment) gauge.Observation {
	return gauge.InPhase(env, cmp.Or(env.Status.Phase, quixv1.PhaseInProgress), env.Status.Conditions)
}
