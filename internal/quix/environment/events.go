package environment

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
)

// report records the results of a reconciliation of a live environment as events. began is its start.
func (r *Reconciler) report(_ context.Context, before, env *quixv1.Environment, s State, _ outcome.Problems, began time.Time) {
	if s.NamespaceCreated {
		reconcile.Normal(r.Events, env, quixv1.ReasonNamespaceCreated, actionCreate, "Created namespace "+namespaceName(env))
	}
	if s.RoleBindingCreated {
		reconcile.Normal(r.Events, env, quixv1.ReasonRoleBindingCreated, actionCreate, "Created role binding "+roleBindingKey(env).String())
	}
	if env.Status.Phase == quixv1.PhaseReady && before.Status.Phase != quixv1.PhaseReady {
		if before.Status.ObservedGeneration == 0 {
			timeToReady.Observe(reconcile.ElapsedSinceCreation(env.CreationTimestamp.Time, began, r.Clock.Now()).Seconds())
		}
		reconcile.Normal(r.Events, env, quixv1.ReasonEnvironmentReady, actionCreate, "Namespace and role binding are in place")
	}
}

// reportDeletion records, once, the reason that blocks a deletion.
func (r *Reconciler) reportDeletion(before, env *quixv1.Environment, e Deletion) {
	if e.UnbindErr != nil && (before.Status.RoleBindingStatus == nil || before.Status.RoleBindingStatus.Message != env.Status.RoleBindingStatus.Message) {
		reconcile.Warning(r.Events, env, quixv1.ReasonRoleBindingDeletionFailed, actionDelete, e.UnbindErr.Error())
	}
	if c := meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionNamespaceReady); e.NotOwned || c.Reason == quixv1.ReasonDeletionBlocked {
		r.kind.Warn(before, env, c.Type, c.Reason, actionDelete, c.Message)
	}
}
