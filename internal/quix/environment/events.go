package environment

import (
	"cmp"
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
)

// report records the results of a reconciliation of a live environment as events. began is its start.
func (r *Reconciler) report(_ context.Context, before, env *quixv1.Environment, s State, _ outcome.Problems, began time.Time) {
	if s.NamespaceCreated {
		reconcile.Normal(r.Events, env, quixv1.ReasonNamespaceCreated, actionCreate, "Created namespace "+namespaceName(env))
	}
	if s.RoleBindingCreated {
		reconcile.Normal(r.Events, env, quixv1.ReasonRoleBindingCreated, actionCreate, "Created role binding "+roleBindingKey(env).String())
	}
	if env.Status.Phase == quixv1.PhaseReady && before.Status.Phase != quixv1.PhaseReady {
		if before.Status.ObservedGeneration == 0 {
			timeToReady.Observe(reconcile.ElapsedSinceCreation(env.CreationTimestamp.Time, began, r.Clock.Now()).Seconds())
		}
		reconcile.Normal(r.Events, env, quixv1.ReasonEnvironmentReady, actionCreate, "Namespace and role binding are in place")
	}
}

// reportDeletion records, once, the reason that blocks a deletion.
func (r *Reconciler) reportDeletion(before, env *quixv1.Environment, e Deletion) {
	if e.UnbindErr != nil && (before.Status.RoleBindingStatus == nil || before.Status.RoleBindingStatus.Message != env.Status.RoleBindingStatus.Message) {
		reconcile.Warning(r.Events, env, quixv1.ReasonRoleBindingDeletionFailed, actionDelete, e.UnbindErr.Error())
	}
	if c := meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionNamespaceReady); e.NotOwned || c.Reason == quixv1.ReasonDeletionBlocked {
		r.kind.Warn(before, env, c.Type, c.Reason, actionDelete, c.Message)
	}
}

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
