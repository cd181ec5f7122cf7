package check

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/event"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// These rights are in a role of their own: berg-check. What a check does in addition (namespaces,
// network policies, the copy of the pull secret, deleting its instance) instances need too.
//
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengechecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengechecks/status,verbs=patch
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstances,verbs=create;get
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=create;list;watch

// newKind says what is particular to ChallengeChecks; kit/reconcile does the rest. Each reconciliation takes one step: it
// begins a check, brings it further, or removes what belonged to it. The status is written between two steps, so that the
// next one, also of another leader, knows what came before.
func (r *Reconciler) newKind() *reconcile.Kind[*bergv1.ChallengeCheck, state] {
	return &reconcile.Kind[*bergv1.ChallengeCheck, state]{
		Client: r.Client, Live: r.Live, Events: r.Events, Clock: r.Clock, Metrics: reconcileMetrics,
		// A ChallengeCheck has the finalizer only while a check runs: it can be deleted without an operator that runs checks.
		Finalizer: bergv1.CheckFinalizer, FinalizerInApply: true,
		Observe: func(ctx context.Context, c *bergv1.ChallengeCheck) (s state, err error) {
			s.Observed, err = r.observe(ctx, c, r.Clock.Now())
			return s, err
		},
		Apply:       r.apply,
		Status:      computeStatus,
		Report:      r.report,
		AfterStatus: r.afterStatus,
		RequeueAfter: func(_ *bergv1.ChallengeCheck, s state, _ outcome.Problems, _ time.Time) time.Duration {
			return s.Again
		},
		Finalize: r.finalize,
		Redact:   r.redact,
	}
}

// immediately is when the next step is taken that only waits for the status to be written.
const immediately = time.Millisecond

func (r *Reconciler) apply(ctx context.Context, c *bergv1.ChallengeCheck, s *state, problems *outcome.Problems) error {
	switch now := r.Clock.Now(); {
	case c.Status.Run == nil:
		return r.begin(ctx, s, now)
	case c.Status.Run.FinishedAt == nil:
		return r.run(ctx, s, problems, now)
	default:
		return r.cleanUp(ctx, s, now)
	}
}

// begin puts the finalizer on if a check is due and may begin, and else says why not. The status says that a check
// is running before any object of it exists. The finalizer comes before the status with the run. If the process ends in between,
// the next reconciliation either begins the check or takes the finalizer off.
func (r *Reconciler) begin(ctx context.Context, s *state, now time.Time) error {
	if s.Reason, s.Message = waiting(s.Observed, r.Config.Check.Concurrency, now); s.Reason != "" {
		s.Again = untilNext(s.Observed, s.Reason, now)
		// A process may have ended between the finalizer and the status, or between both at the end.
		return r.release(ctx, s.Check)
	}
	s.Proof, s.Again = r.tokens.Draw(), immediately
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, r.Live, s.Check, bergv1.CheckFinalizer)); err != nil {
		if outcome.Classify(err) == outcome.Rejected {
			// The recorder counts repetitions.
			reconcile.Warning(r.Events, s.Check, bergv1.ReasonRefused, actionCheck, "The API server refuses the finalizer of this ChallengeCheck: "+refusal.Annotate(r.redact(ctx, s.Check, err).Error()))
			r.postpone(s.Check, now)
		}
		return err
	}
	return nil
}

// afterStatus lets other checks go first if the API server refuses to let this one begin.
func (r *Reconciler) afterStatus(_ context.Context, c *bergv1.ChallengeCheck, s state, _ outcome.Problems, refused error, now time.Time) error {
	if refused != nil && s.Proof != "" {
		r.postpone(c, now)
	}
	return nil
}

// postpone lets other checks go before one that could not begin. Without it a check that the API server refuses would be first
// again each time, and no other check would ever begin.
func (r *Reconciler) postpone(c *bergv1.ChallengeCheck, now time.Time) {
	r.refusals.note(c, now)
	select {
	case r.queueChanged <- event.GenericEvent{Object: &bergv1.ChallengeCheck{}}:
	default: // they are being enqueued
	}
}

// untilNext is how long it is until a check that waits may begin, if nothing else happens; zero if
// time alone changes nothing.
func untilNext(o Observed, reason string, now time.Time) time.Duration {
	dueTime := due(o.Check, o.Challenge)
	switch {
	case reason == bergv1.CheckReasonPlayersFirst:
		dueTime = o.Players.Until
	case reason == bergv1.CheckReasonQueued && !o.RefusedUntil.IsZero():
		dueTime = o.RefusedUntil
	}
	if dueTime.IsZero() {
		return 0
	}
	return max(0, dueTime.Sub(now))
}

// run brings a running check a step further.
func (r *Reconciler) run(ctx context.Context, s *state, problems *outcome.Problems, now time.Time) error {
	o := &s.Observed
	// Another client may have removed it.
	if err := outcome.WrapNotFound(finalizer.Ensure(ctx, r.Client, r.Live, o.Check, bergv1.CheckFinalizer)); err != nil {
		return err
	}
	v := r.assess(ctx, *o, now)
	// An assessment that has ended builds nothing more: the objects are deleted in the next reconciliation.
	if !v.ended() {
		err := r.build(ctx, o)
		if r.builds.over(o.Check, err, now) {
			v = failed(bergv1.CheckRefused, "The API server refuses the objects of the check: "+refusal.Annotate(r.redact(ctx, o.Check, err).Error()))
		} else if err != nil {
			problems.Add(&outcome.Problem{Condition: bergv1.CheckConditionRunning, Class: outcome.Retry, Err: err})
		}
	}
	s.Assessment, s.Again = v, v.Left
	if v.ended() {
		s.Again = immediately // the result is stored before its objects are deleted
	}
	return nil
}

// assess returns the state of a running check.
func (r *Reconciler) assess(ctx context.Context, o Observed, now time.Time) Assessment {
	switch {
	case o.Conflicting != "":
		return failed(bergv1.CheckRefused, o.Conflicting+" exists and belongs to another owner; it was left untouched: delete or rename it")
	case o.Challenge == nil:
		return brokenOff("The Challenge was deleted")
	}
	if o.PodRefused != "" {
		o.PodRefused = refusal.Annotate(r.redact(ctx, o.Check, errors.New(o.PodRefused)).Error())
	}
	v := assess(o, now)
	if v.unreached() {
		v.add(r.routeProblems(ctx, o.Instance))
	}
	return v
}

// cleanUp deletes the objects of a check that has ended. When all of them are gone, the ChallengeCheck is released.
func (r *Reconciler) cleanUp(ctx context.Context, s *state, now time.Time) (err error) {
	if s.Gone, s.Again, err = r.end(ctx, s.Observed, now); err != nil || !s.Gone {
		return err
	}
	return r.release(ctx, s.Check)
}
