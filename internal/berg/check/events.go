package check

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// actionCheck is the action that every event names: the operator was making a check.
const actionCheck = "Check"

// report counts a check that has ended, and records what it found if that differs from the last result.
func (r *Reconciler) report(_ context.Context, before, c *bergv1.ChallengeCheck, s state, _ outcome.Problems, _ time.Time) {
	v := s.Assessment
	if v.BrokenOff != "" {
		results.WithLabelValues(bergv1.CheckReasonInterrupted).Inc()
		reconcile.Normal(r.Events, c, bergv1.CheckReasonInterrupted, actionCheck, v.BrokenOff+"; the check is made again later")
	}
	if v.Result == nil {
		return
	}
	measure(v.Result)
	now := apimeta.FindStatusCondition(c.Status.Conditions, bergv1.CheckConditionSolvable)
	if now == nil || !conditions.Transitioned(before.Status.Conditions, *now) {
		return
	}
	about := "Challenge " + c.Spec.ChallengeRef.Name
	if v.Result.Result == bergv1.CheckSolved {
		reconcile.Normal(r.Events, c, now.Reason, actionCheck, fmt.Sprintf("%s can be solved: %s", about, now.Message))
		return
	}
	reconcile.Warning(r.Events, c, now.Reason, actionCheck, fmt.Sprintf("%s was not solved: %s", about, now.Message))
}
