package environment

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
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

// report tells what changed between two statuses of a live environment, each
// thing once. began is when the pass did.
func (r *Reconciler) report(before, env *quixv1.Environment, out Outcome, began time.Time) {
	if out.NamespaceCreated {
		reconcile.Normal(r.Events, env, quixv1.ReasonNamespaceCreated, actionCreate, "Created namespace "+namespaceName(env))
	}
	if out.RoleBindingCreated {
		reconcile.Normal(r.Events, env, quixv1.ReasonRoleBindingCreated, actionCreate, "Created role binding "+roleBindingKey(env).String())
	}
	if env.Status.Phase == quixv1.PhaseReady && before.Status.Phase != quixv1.PhaseReady {
		if before.Status.ObservedGeneration == 0 {
			timeToReady.Observe(elapsed.SinceCreation(env.CreationTimestamp.Time, began, r.Clock.Now()).Seconds())
		}
		reconcile.Normal(r.Events, env, quixv1.ReasonEnvironmentReady, actionCreate, "Namespace and role binding are in place")
	}
	for _, step := range steps {
		if p := out.of(step); p != nil && p.Class != outcome.Waiting {
			r.warning(before, env, step, p.Reason, actionCreate, p.Message)
		}
	}
}

// reportDeletion tells, once, what blocks a deletion.
func (r *Reconciler) reportDeletion(before, env *quixv1.Environment, e Deletion) {
	if e.UnbindErr != nil && (before.Status.RoleBindingStatus == nil || before.Status.RoleBindingStatus.Message != env.Status.RoleBindingStatus.Message) {
		reconcile.Warning(r.Events, env, quixv1.ReasonRoleBindingDeletionFailed, actionDelete, e.UnbindErr.Error())
	}
	if c := meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionNamespaceReady); e.Foreign || c.Reason == quixv1.ReasonDeletionBlocked {
		r.warning(before, env, c.Type, c.Reason, actionDelete, c.Message)
	}
}

// warning is told when the condition was not False for the reason before.
func (r *Reconciler) warning(before, env *quixv1.Environment, condition, reason, action, message string) {
	c := metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason}
	if conditions.Transitioned(before.Status.Conditions, c) {
		reconcile.Warning(r.Events, env, reason, action, message)
	}
}
