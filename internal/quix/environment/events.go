package environment

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/elapsed"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// The actions of events: what the operator was doing.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
)

// report tells what changed between two statuses of a live environment, each
// thing once. began is when the pass did.
func (r *Reconciler) report(before, env *quixv1.Environment, out Outcome, began time.Time) {
	if out.NamespaceCreated {
		r.normal(env, quixv1.ReasonNamespaceCreated, "Created namespace "+namespaceName(env))
	}
	if out.RoleBindingCreated {
		r.normal(env, quixv1.ReasonRoleBindingCreated, "Created role binding "+roleBindingKey(env).String())
	}
	if env.Status.Phase == quixv1.PhaseReady && before.Status.Phase != quixv1.PhaseReady {
		if before.Status.ObservedGeneration == 0 {
			timeToReady.Observe(elapsed.SinceCreation(env.CreationTimestamp.Time, began, r.Clock.Now()).Seconds())
		}
		r.normal(env, quixv1.ReasonEnvironmentReady, "Namespace and role binding are in place")
	}
	for _, step := range steps {
		if p := out.of(step); p != nil && p.Class != outcome.Waiting {
			r.warning(before, env, step, p.Reason, actionCreate, p.Message)
		}
	}
}

// reportEnding tells, once, what stands in the way of a deletion.
func (r *Reconciler) reportEnding(before, env *quixv1.Environment, e Ending) {
	if e.UnbindErr != nil && (before.Status.RoleBindingStatus == nil || before.Status.RoleBindingStatus.Message != env.Status.RoleBindingStatus.Message) {
		r.Events.Eventf(env, nil, corev1.EventTypeWarning, quixv1.ReasonRoleBindingDeletionFailed, actionDelete, "%s", conditions.Note(e.UnbindErr.Error()))
	}
	if c := meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionNamespaceReady); e.Foreign || c.Reason == quixv1.ReasonDeletionBlocked {
		r.warning(before, env, c.Type, c.Reason, actionDelete, c.Message)
	}
}

func (r *Reconciler) normal(env *quixv1.Environment, reason, message string) {
	r.Events.Eventf(env, nil, corev1.EventTypeNormal, reason, actionCreate, "%s", conditions.Note(message))
}

// warning is told when the condition did not have the reason before.
func (r *Reconciler) warning(before, env *quixv1.Environment, condition, reason, action, message string) {
	if c := meta.FindStatusCondition(before.Status.Conditions, condition); c == nil || c.Reason != reason {
		r.Events.Eventf(env, nil, corev1.EventTypeWarning, reason, action, "%s", conditions.Note(message))
	}
}
