package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Queued reports whether the status says that an instance waits because a limit on the number
// of instances is reached.
func Queued(i *bergv1.ChallengeInstance) bool {
	if i.DeletionTimestamp != nil || i.Status.InstanceID != "" {
		return false
	}
	c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionAdmitted)
	return c != nil && c.Reason == bergv1.ReasonQueued
}

// QueuedProblem does not contain the position in the queue: it would change for hundreds of
// instances whenever one ends.
func QueuedProblem(c Candidate, cfg config.Challenge) *outcome.Problem {
	var bounds []string
	if cfg.MaxInstances > 0 {
		bounds = append(bounds, "the operator's CHALLENGE_MAX_INSTANCES")
	}
	if c.Challenge.Spec.MaxInstances > 0 {
		bounds = append(bounds, fmt.Sprintf("spec.maxInstances of Challenge %s", c.Key))
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionAdmitted, Reason: bergv1.ReasonQueued, Class: outcome.Waiting,
		Message: fmt.Sprintf("Queued: the limit set by %s is reached. Starts automatically, in creation order, when a slot is free; the timeout has not started",
			strings.Join(bounds, " or ")),
	}
}

// admission is the condition of an instance that is not queued. There is none if no limit
// applies.
func admission(out Outcome) []metav1.Condition {
	s := out.Instance.Status
	if !out.Bounded && meta.FindStatusCondition(s.Conditions, bergv1.ConditionAdmitted) == nil {
		return nil
	}
	if s.InstanceID == "" && out.Problem != nil {
		return []metav1.Condition{Condition(bergv1.ConditionAdmitted, metav1.ConditionUnknown, bergv1.ReasonWaiting, waitsFor(out.Problem))}
	}
	return []metav1.Condition{Condition(bergv1.ConditionAdmitted, metav1.ConditionTrue, bergv1.ReasonAdmitted, "The number of instances is within the limits")}
}
