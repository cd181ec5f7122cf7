package application

import (
	"context"
	"time"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// actionObserve is the action that events name: the operator was observing.
const actionObserve = "Observe"

// report records the differences between two statuses of a live Application as events. The namespace of a Project that
// is being deleted accepts no events.
func (r *Reconciler) report(_ context.Context, before, a *kibashipv1.Application, o Observed, problems outcome.Problems, _ time.Time) {
	if a.Status.Phase == kibashipv1.ApplicationReady && before.Status.Phase != kibashipv1.ApplicationReady {
		reconcile.Normal(r.Events, a, kibashipv1.ReasonApplicationReady, actionObserve, a.Status.Message)
	}
	if o.Project != nil && o.Project.DeletionTimestamp != nil {
		return
	}
	for _, p := range problems {
		if p.Class == outcome.Waiting { // a person has to create the missing object
			r.kind.Warn(before, a, p.Condition, p.Reason, actionObserve, p.Message)
		}
	}
}
