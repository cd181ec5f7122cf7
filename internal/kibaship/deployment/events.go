package deployment

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionBuild   = "Build"
	actionObserve = "Observe"
)

// report records the differences between two statuses as events, except problems.
func (r *Reconciler) report(_ context.Context, before, d *kibashipv1.Deployment, out Outcome, problems outcome.Problems, _ time.Time) {
	if out.Started != "" {
		reconcile.Normal(r.Events, d, kibashipv1.ReasonRunStarted, actionBuild, "Started PipelineRun "+out.Started)
	}
	for _, run := range d.Status.RunHistory {
		if adopted := out.In != nil && out.In.Adopted != nil && out.In.Adopted.Name == run.Name; !adopted && hasEnded(before.Status.RunHistory, run) {
			countRun(out, run)
		}
	}
	c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded)
	if !conditions.Transitioned(before.Status.Conditions, *c) {
		return
	}
	switch {
	case c.Status == metav1.ConditionTrue && c.Reason != kibashipv1.ReasonNothingToBuild:
		reconcile.Normal(r.Events, d, c.Reason, actionObserve, c.Message)
	case c.Status == metav1.ConditionFalse && problems.On(c.Type) == nil: // a run has failed
		reconcile.Warning(r.Events, d, c.Reason, actionObserve, c.Message)
	}
}

// hasEnded reports whether a run is over that was not over in the status before.
func hasEnded(before []kibashipv1.PipelineRunStatus, run kibashipv1.PipelineRunStatus) bool {
	if run.Phase == kibashipv1.DeploymentRunning {
		return false
	}
	for _, known := range before {
		if known.Name == run.Name {
			return known.Phase == kibashipv1.DeploymentRunning
		}
	}
	return true
}
