package challenge

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// actionCheck is the action in events.
const actionCheck = "Check"

var reconcileMetrics = reconcile.NewMetrics("berg_challenge",
	"Checks of Challenges that failed and are tried again: the API server did not answer. Mistakes in Challenges do not count.")

func init() { metrics.Registry.MustRegister(reconcileMetrics) }

// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges,verbs=list;watch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challenges/status,verbs=patch

// SetupWithManager opens the watch. The controller that pulls images writes its own condition into the same status. Each of
// the two reads the other's condition before it writes, and repeats a write after a conflict.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	challenges := ctrl.NewControllerManagedBy(mgr).
		Named("berg-challenge").
		For(&bergv1.Challenge{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.Replaced, stale))).
		WithOptions(r.ControllerOptions())
	if nodes.Watched(r.Config) {
		if err := reconcile.Open(ctx, mgr.GetCache(), &corev1.Node{}); err != nil {
			return err
		}
		challenges = challenges.Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.nested), builder.WithPredicates(nodes.Changed))
	}
	return challenges.Complete(r.newKind().Reconciler())
}

// nested maps any event to the Challenges that need user namespaces: a change of a node can change no other Challenge.
func (r *Reconciler) nested(ctx context.Context, _ client.Object) []ctrl.Request {
	return reconcile.Requests(ctx, r.Client, &bergv1.ChallengeList{}, func(o client.Object) bool {
		return nodes.Support{None: true}.Check("", o.(*bergv1.Challenge).Spec.Containers) != nil
	})
}

// newKind returns the reconciliation of Challenges. It has no finalizer and applies nothing, because a Challenge owns no
// objects: instances keep their own copy of its content.
func (r *Reconciler) newKind() *reconcile.Kind[*bergv1.Challenge, state] {
	return &reconcile.Kind[*bergv1.Challenge, state]{
		Client: r.Client, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Observe: func(ctx context.Context, _ *bergv1.Challenge) (s state, err error) {
			s.nodes, err = nodes.Observe(ctx, r.Client, r.Config)
			return s, err
		},
		Check:  func(c *bergv1.Challenge, s *state) outcome.Problems { return check(c, s, r.Rules) },
		Apply:  func(context.Context, *bergv1.Challenge, *state, *outcome.Problems) error { return nil },
		Status: computeStatus,
		Report: r.report,
	}
}

// report says that a Challenge is accepted only if it was not accepted before: most Challenges are accepted from the
// beginning, and an event about each would say nothing new.
func (r *Reconciler) report(_ context.Context, before, c *bergv1.Challenge, s state, problems outcome.Problems, _ time.Time) {
	old := accepted(before)
	if old != nil && len(problems) == 0 && conditions.Transitioned(before.Status.Conditions, *accepted(c)) {
		reconcile.Normal(r.Events, c, bergv1.ChallengeAccepted, actionCheck, accepted(c).Message)
	}
	if len(problems) == 0 && len(s.warnings) > 0 && (old == nil || old.ObservedGeneration != c.Generation || old.Message != accepted(c).Message) {
		reconcile.Warning(r.Events, c, bergv1.ChallengeProbableMistake, actionCheck, accepted(c).Message)
	}
}
