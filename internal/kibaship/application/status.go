package application

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// checks are the conditions of an Application, in the order in which they are told.
var checks = []string{kibashipv1.ConditionProjectFound, kibashipv1.ConditionSpecAccepted, kibashipv1.ConditionSecretFound}

// waiting are what an Application waits for though nothing is wrong: Secrets that are not
// known yet.
func waiting(a *kibashipv1.Application, o Observed) bool {
	return len(rules.Secrets(&a.Spec)) > 0 && !o.SecretsKnown
}

// computeStatus writes into the status of a live Application what was observed and judged.
func computeStatus(a *kibashipv1.Application, o Observed, problems map[string]*outcome.Problem, now time.Time) {
	s := &a.Status
	s.ObservedGeneration = a.Generation
	s.Limits = a.Spec.Limits
	if o.Project != nil {
		s.Limits = rules.Effective(&a.Spec, &o.Project.Spec)
	}
	var first *outcome.Problem
	for _, step := range checks {
		if p := problems[step]; p != nil {
			first = cmp.Or(first, p)
		}
	}
	for _, step := range checks {
		computeCheck(a, o, step, problems, now)
	}
	switch {
	case first == nil && waiting(a, o):
		s.Phase, s.Message = kibashipv1.ApplicationPending, "The Secrets of the namespace are not known yet"
		set(a, kibashipv1.ConditionReady, metav1.ConditionFalse, kibashipv1.ReasonWaiting, s.Message, now)
	case first == nil:
		s.Phase, s.Message = kibashipv1.ApplicationReady, "The Application can be deployed"
		set(a, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonApplicationReady, s.Message, now)
	default:
		s.Phase, s.Message = kibashipv1.ApplicationPending, first.Message
		for _, p := range problems {
			if p.Class == outcome.Blocked || p.Class == outcome.External {
				s.Phase = kibashipv1.ApplicationFailed
			}
		}
		set(a, kibashipv1.ConditionReady, metav1.ConditionFalse, first.Reason, first.Message, now)
	}
}

func computeCheck(a *kibashipv1.Application, o Observed, step string, problems map[string]*outcome.Problem, now time.Time) {
	switch p := problems[step]; {
	case p != nil:
		set(a, step, metav1.ConditionFalse, p.Reason, p.Message, now)
	case step == kibashipv1.ConditionProjectFound:
		set(a, step, metav1.ConditionTrue, kibashipv1.ReasonProjectFound, "Project "+a.Spec.ProjectRef.Name+" is Ready, and this is its namespace", now)
	case step == kibashipv1.ConditionSpecAccepted && o.Project == nil:
		set(a, step, metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "What the Project allows is not known", now)
	case step == kibashipv1.ConditionSpecAccepted:
		set(a, step, metav1.ConditionTrue, kibashipv1.ReasonSpecAccepted, "Name and spec are good, and within what the Project allows", now)
	case len(rules.Secrets(&a.Spec)) == 0:
		set(a, step, metav1.ConditionTrue, kibashipv1.ReasonSecretNotNeeded, "The Application names no Secret", now)
	case !o.SecretsKnown:
		set(a, step, metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "Secrets are looked at when the Project is Ready", now)
	default:
		set(a, step, metav1.ConditionTrue, kibashipv1.ReasonSecretFound, "Every Secret that the Application names exists", now)
	}
}

// computeDeleting writes the status of an Application that is being deleted.
func computeDeleting(a *kibashipv1.Application, problem error, now time.Time) {
	s := &a.Status
	s.ObservedGeneration = a.Generation
	s.Phase, s.Message = kibashipv1.ApplicationDeleting, "The Deployments of the Application are being deleted"
	reason := kibashipv1.ReasonTerminating
	if problem != nil {
		reason, s.Message = kibashipv1.ReasonDeletionBlocked, "The Deployments of the Application cannot be deleted: "+problem.Error()
	}
	set(a, kibashipv1.ConditionReady, metav1.ConditionFalse, reason, s.Message, now)
}

// bound brings what a status says beside its conditions to its length.
func bound(a *kibashipv1.Application) { a.Status.Message = conditions.Bound(a.Status.Message) }

func set(a *kibashipv1.Application, conditionType string, status metav1.ConditionStatus, reason, message string, now time.Time) {
	conditions.Upsert(&a.Status.Conditions, a.Generation, now, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message,
	})
}
