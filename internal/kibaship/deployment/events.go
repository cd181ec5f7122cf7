package deployment

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions of events: what the operator was doing.
const (
	actionBuild   = "Build"
	actionObserve = "Observe"
)

// report tells what changed between two statuses, each thing once. started is the name of the
// run that this pass began, "" for none.
func (r *Reconciler) report(before *kibashipv1.Deployment, out Outcome, started string) {
	d := out.Deployment
	if started != "" {
		reconcile.Normal(r.Events, d, kibashipv1.ReasonRunStarted, actionBuild, "Started PipelineRun "+started)
	}
	for _, run := range d.Status.RunHistory {
		if hasEnded(before.Status.RunHistory, run) {
			countRun(out, run)
		}
	}
	for _, c := range d.Status.Conditions {
		if !conditions.Transitioned(before.Status.Conditions, c) {
			continue
		}
		switch {
		case c.Type == kibashipv1.ConditionSucceeded && c.Status == metav1.ConditionTrue && c.Reason != kibashipv1.ReasonNothingToBuild:
			reconcile.Normal(r.Events, d, c.Reason, actionObserve, c.Message)
		case c.Type != kibashipv1.ConditionReady && c.Status == metav1.ConditionFalse:
			reconcile.Warning(r.Events, d, c.Reason, actionObserve, c.Message)
		}
	}
}

// hasEnded reports whether a run is over that was not, as far as was known.
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
