package application

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions of events: what the operator was doing.
const (
	actionDelete  = "Delete"
	actionObserve = "Observe"
)

// report tells what changed between two statuses of a live Application, each thing once. With
// its Project the namespace goes, which takes no events any more.
func (r *Reconciler) report(before, a *kibashipv1.Application, o Observed, problems map[string]*outcome.Problem) {
	going := o.Project != nil && o.Project.DeletionTimestamp != nil
	if a.Status.Phase == kibashipv1.ApplicationReady && before.Status.Phase != kibashipv1.ApplicationReady {
		reconcile.Normal(r.Events, a, kibashipv1.ReasonApplicationReady, actionObserve, a.Status.Message)
	}
	for _, step := range checks {
		p := problems[step]
		if p == nil || going {
			continue
		}
		c := metav1.Condition{Type: step, Status: metav1.ConditionFalse, Reason: p.Reason}
		if conditions.Transitioned(before.Status.Conditions, c) {
			reconcile.Warning(r.Events, a, p.Reason, actionObserve, p.Message)
		}
	}
}
