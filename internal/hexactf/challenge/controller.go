package challenge

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The finalizers right lets a challenge own objects where the API server asks for it.
//
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challenges,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challenges/status,verbs=patch
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challenges/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps.hexactf.io,resources=challengedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// newKind returns the steps that are particular to Challenges; kit/reconcile does the rest.
func (r *Reconciler) newKind() *reconcile.Kind[*hexactfv1.Challenge, Outcome] {
	return &reconcile.Kind[*hexactfv1.Challenge, Outcome]{
		Client: r.Client, Live: r.Writer.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		Finalizer: hexactfv1.Finalizer,
		Skip:      expired, // the controller of expiries deletes it
		Observe:   r.observe,
		Check: func(_ *hexactfv1.Challenge, out *Outcome) (problems outcome.Problems) {
			problems.Add(check(out.Observed, r.Config))
			return problems
		},
		Apply: r.apply,
		Status: func(c *hexactfv1.Challenge, out Outcome, _ outcome.Problems, now time.Time) reconcile.Ready {
			// The status stays as it is, and is looked at again when the time is over.
			if quietFor(out, r.Config, now) > 0 {
				return reported(c)
			}
			return computeStatus(out, r.Config, now)
		},
		Report:      r.report,
		AfterStatus: r.giveUp,
		RequeueAfter: func(_ *hexactfv1.Challenge, out Outcome, _ outcome.Problems, now time.Time) time.Duration {
			return cmp.Or(quietFor(out, r.Config, now), requeueAfter(out, r.Config, now))
		},
		Finalize: r.finalize,
		Forget: func(_ context.Context, key types.NamespacedName) error {
			r.deliveries.forget(key)
			return nil
		},
	}
}

// apply starts a challenge without a problem, writes its objects, and observes the result. A challenge that another operator has
// started is only observed.
func (r *Reconciler) apply(ctx context.Context, c *hexactfv1.Challenge, out *Outcome, problems *outcome.Problems) error {
	if !out.Inherited && len(*problems) == 0 {
		if err := r.start(ctx, out); err != nil {
			return err
		}
		var stopped *outcome.Problem
		var err error
		if out.Endpoint, stopped, err = r.build(ctx, out.Observed); err != nil {
			return err
		}
		problems.Add(stopped)
	}
	out.Problem, out.Delivery = problems.First(), r.deliveries.get(c)
	return r.observeDeployments(ctx, &out.Observed)
}

// giveUp asks for the deletion of a challenge that can never run. Its state says why, and a message is recorded,
// before it is gone. It comes after the write of the status, so the message about the end is in the outbox before the challenge
// is deleted.
func (r *Reconciler) giveUp(ctx context.Context, c *hexactfv1.Challenge, _ Outcome, problems outcome.Problems, _ error, now time.Time) error {
	reason := problems.First()
	if !terminal(c, reason, r.Config.DefinitionTimeout, now) {
		return nil
	}
	if err := outcome.WrapNotFound(apply.Delete(ctx, r.Client, c)); err != nil {
		return err
	}
	reconcile.Warning(r.Events, c, hexactfv1.ReasonTerminating, actionDelete, "The challenge can never run and is deleted: "+reason.Message)
	return nil
}
