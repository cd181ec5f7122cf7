package project

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/elapsed"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions of events: what the operator was doing.
const (
	actionCreate  = "Create"
	actionDelete  = "Delete"
	actionObserve = "Observe"
)

// report tells what changed between two statuses of a live Project, each thing once. began is
// when the pass did.
func (r *Reconciler) report(before, p *kibashipv1.Project, out Outcome, began time.Time) {
	if out.NamespaceCreated {
		reconcile.Normal(r.Events, p, kibashipv1.ReasonNamespaceCreated, actionCreate, "Created namespace "+naming.Namespace(p.Name))
	}
	if p.Status.Phase == kibashipv1.ProjectReady && before.Status.Phase != kibashipv1.ProjectReady {
		if before.Status.ObservedGeneration == 0 {
			timeToReady.Observe(elapsed.SinceCreation(p.CreationTimestamp.Time, began, r.Clock.Now()).Seconds())
		}
		reconcile.Normal(r.Events, p, kibashipv1.ReasonProjectReady, actionCreate, p.Status.Message)
	}
	for _, step := range steps {
		if problem := out.problems[step]; problem != nil && problem.Class != outcome.Waiting {
			r.warning(before, p, step, problem.Reason, actionCreate, problem.Message)
		}
	}
}

// reportDeletion tells, once, what blocks a deletion.
func (r *Reconciler) reportDeletion(before, p *kibashipv1.Project, e Deletion) {
	if c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionNamespaceReady); e.Foreign || c.Reason == kibashipv1.ReasonDeletionBlocked {
		r.warning(before, p, c.Type, c.Reason, actionDelete, c.Message)
	}
}

// warning is told when the condition was not False for the reason before.
func (r *Reconciler) warning(before, p *kibashipv1.Project, condition, reason, action, message string) {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason}
	if conditions.Transitioned(before.Status.Conditions, c) {
		reconcile.Warning(r.Events, p, reason, action, message)
	}
}
