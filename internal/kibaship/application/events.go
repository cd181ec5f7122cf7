package application

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionObserve = "Observe"
	actionBuild   = "Build"
)

// report records the differences between two statuses of a live Application as events. The namespace of a Project that
// is being deleted accepts no events.
func (r *Reconciler) report(_ context.Context, before, a *kibashipv1.Application, o Observed, problems outcome.Problems, _ time.Time) {
	if a.Status.Phase == kibashipv1.ApplicationReady && before.Status.Phase != kibashipv1.ApplicationReady {
		reconcile.Normal(r.Events, a, kibashipv1.ReasonApplicationReady, actionObserve, a.Status.Message)
	}
	if o.Project != nil && o.Project.DeletionTimestamp != nil {
		return
	}
	if o.AutoBuild != nil {
		r.reportBuilds(before, a, o.AutoBuild)
	}
	for _, p := range problems {
		if p.Class == outcome.Waiting { // a person has to create the missing object
			r.kind.Warn(before, a, p.Condition, p.Reason, actionObserve, p.Message)
		}
	}
}

// reportBuilds records the builds that pushes have started, and why they cannot.
func (r *Reconciler) reportBuilds(before, a *kibashipv1.Application, b *AutoBuild) {
	for _, s := range b.started {
		reconcile.Normal(r.Events, a, kibashipv1.ReasonBuildStarted, actionBuild, fmt.Sprintf("Commit %s of %s is being built", s.commit, s.ref))
		if s.before != "" {
			reconcile.Normal(r.Events, a, kibashipv1.ReasonBuildReplaced, actionBuild,
				fmt.Sprintf("Commit %s of %s is not built any more: %s is newer", s.before, s.ref, s.commit))
		}
	}
	if status, reason, message := b.condition(); status == metav1.ConditionFalse {
		r.kind.Warn(before, a, kibashipv1.ConditionAutoBuild, reason, actionBuild, message)
	}
}
