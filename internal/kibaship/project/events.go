package project

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
)

// report records the results of a reconciliation of a live Project as events. began is its start.
func (r *Reconciler) report(_ context.Context, before, p *kibashipv1.Project, s State, _ outcome.Problems, began time.Time) {
	if s.NamespaceCreated {
		reconcile.Normal(r.Events, p, kibashipv1.ReasonNamespaceCreated, actionCreate, "Created namespace "+naming.Namespace(p.Name))
	}
	if p.Status.Phase == kibashipv1.ProjectReady && before.Status.Phase != kibashipv1.ProjectReady {
		if before.Status.ObservedGeneration == 0 {
			timeToReady.Observe(reconcile.ElapsedSinceCreation(p.CreationTimestamp.Time, began, r.Clock.Now()).Seconds())
		}
		reconcile.Normal(r.Events, p, kibashipv1.ReasonProjectReady, actionCreate, p.Status.Message)
	}
}

// reportDeletion records, once, the reason that blocks a deletion.
func (r *Reconciler) reportDeletion(before, p *kibashipv1.Project, e Deletion) {
	if c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionNamespaceReady); e.Foreign || c.Reason == kibashipv1.ReasonDeletionBlocked {
		r.kind.Warn(before, p, c.Type, c.Reason, actionDelete, c.Message)
	}
}
