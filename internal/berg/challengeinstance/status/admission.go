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

// Queued reports whether an instance says that it waits for others to end, because as many
// exist as may.
func Queued(i *bergv1.ChallengeInstance) bool {
	if i.DeletionTimestamp != nil || i.Status.InstanceID != "" {
		return false
	}
	c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionAdmitted)
	return c != nil && c.Reason == bergv1.ReasonQueued
}

// QueuedProblem says nothing of the place in the queue: of hundreds, each would be written anew
// whenever one ends.
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
		Message: fmt.Sprintf("Waits in the queue: as many instances exist as %s allows. It starts by itself when others are gone and those that were created before it have started; its time does not run until then",
			strings.Join(bounds, " or ")),
	}
}

// admission says of an instance that does not wait in the queue whether there was room for it;
// nothing where nobody has asked.
func admission(out Outcome) []metav1.Condition {
	s := out.Instance.Status
	if !out.Bounded && meta.FindStatusCondition(s.Conditions, bergv1.ConditionAdmitted) == nil {
		return nil
	}
	if s.InstanceID == "" && out.Problem != nil {
		return []metav1.Condition{Condition(bergv1.ConditionAdmitted, metav1.ConditionUnknown, bergv1.ReasonWaiting, waitsFor(out.Problem))}
	}
	return []metav1.Condition{Condition(bergv1.ConditionAdmitted, metav1.ConditionTrue, bergv1.ReasonAdmitted, "There was room for the instance")}
}
