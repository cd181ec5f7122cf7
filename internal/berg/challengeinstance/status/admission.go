package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/admission"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Queued reports whether the status of an instance says that it waits because a limit is reached.
func Queued(i *bergv1.ChallengeInstance) bool {
	if i.DeletionTimestamp != nil || i.Status.InstanceID != "" {
		return false
	}
	c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionAdmitted)
	return c != nil && c.Reason == bergv1.ReasonQueued
}

// WaitProblem returns why an instance waits although it could be built. The message names the limit, not the position in
// the queue: otherwise each end of an instance would change the status of hundreds. The same decision always has the same text,
// so a status is written once for each limit.
func WaitProblem(d admission.Decision, cfg config.Challenge) *outcome.Problem {
	var limit string
	switch d.Reason {
	case admission.OwnerBusy:
		return ownerBusy(d.Key, d.Ahead)
	case admission.AboveBudget:
		return queued(fmt.Sprintf("Queued: spec.cost of Challenge %s is above the operator's SOURCE_BUDGET (%d). The instance starts when one of them is changed",
			d.Challenge, cfg.SourceBudget))
	case admission.PlayersFirst:
		return queued("Queued: instances of players go first. An instance of a check, or a prepared one, starts automatically when no player waits for a slot")
	case admission.SourceInstances:
		limit = fmt.Sprintf("the operator's SOURCE_MAX_INSTANCES (%d) for source %s", cfg.SourceMaxInstances, d.Source)
	case admission.SourceBudget:
		limit = fmt.Sprintf("the operator's SOURCE_BUDGET (%d) for source %s", cfg.SourceBudget, d.Source)
	case admission.ChallengeFull:
		limit = fmt.Sprintf("spec.maxInstances of Challenge %s", d.Challenge)
	case admission.NamespaceFull:
		limit = fmt.Sprintf("the operator's CHALLENGE_NAMESPACE_MAX_INSTANCES (%d) for namespace %s", cfg.NamespaceMaxInstances, d.Key.Namespace)
	default:
		limit = fmt.Sprintf("the operator's CHALLENGE_MAX_INSTANCES (%d)", cfg.MaxInstances)
	}
	return queued(fmt.Sprintf("Queued: the limit set by %s is reached. The instance starts automatically, in creation order, when a slot is free; its timeout has not started",
		limit))
}

func queued(message string) *outcome.Problem {
	return &outcome.Problem{Condition: bergv1.ConditionAdmitted, Reason: bergv1.ReasonQueued, Class: outcome.Waiting, Message: message}
}

// ownerBusy names the instance directly before this one, which a player can delete. It does not name an instance of another
// namespace: its name concerns only the tenant there.
func ownerBusy(waiting, ahead types.NamespacedName) *outcome.Problem {
	message := fmt.Sprintf("Waiting for instance %s of the same owner and its namespace to be deleted", ahead)
	if ahead.Namespace != waiting.Namespace {
		message = "Waiting for an instance of the same owner in another namespace to be deleted. Use another spec.ownerId, or ask the administrator"
	}
	return &outcome.Problem{Condition: bergv1.ConditionNamespaceCreated, Reason: bergv1.ReasonOwnerBusy, Class: outcome.Waiting, Message: message}
}

// Reports reports whether the status of an instance that was not started shows a problem already, so that Compute would
// change nothing. Without this check each round would compute and compare the status of hundreds of waiting instances.
func Reports(i *bergv1.ChallengeInstance, p *outcome.Problem) bool {
	shows := func(wanted metav1.Condition) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, wanted.Type)
		return c != nil && c.Reason == wanted.Reason && c.Message == wanted.Message && c.ObservedGeneration == i.Generation
	}
	message := conditions.Bound(redact.Text(p.Message, i.Spec.Flag))
	return i.Status.ObservedGeneration == i.Generation && shows(alive(i)) && shows(metav1.Condition{Type: p.Condition, Reason: p.Reason, Message: message})
}

// admissionConditions says whether the limits let an instance start that does not wait in the queue. Without a limit there
// is no condition.
func admissionConditions(out Outcome) []metav1.Condition {
	s := out.Instance.Status
	if !out.Limited && meta.FindStatusCondition(s.Conditions, bergv1.ConditionAdmitted) == nil {
		return nil
	}
	if s.InstanceID == "" && out.Problem != nil {
		return []metav1.Condition{Condition(bergv1.ConditionAdmitted, metav1.ConditionUnknown, bergv1.ReasonWaiting, waitsFor(out.Problem))}
	}
	return []metav1.Condition{Condition(bergv1.ConditionAdmitted, metav1.ConditionTrue, bergv1.ReasonAdmitted, "The number of instances is within the limits")}
}
