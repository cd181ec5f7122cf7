package check

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// actionCheck is the action that every event names: the operator was making a check.
const actionCheck = "Check"

// report counts the result of a check, and records changes as events.
func (r *Reconciler) report(before, c *bergv1.ChallengeCheck, v Assessment) {
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
