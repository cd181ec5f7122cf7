package why

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// ProblemReason returns the reason of the first problem that the status of an instance shows, "" if there is none.
func ProblemReason(i *bergv1.ChallengeInstance) string {
	if c := firstProblem(i); c != nil {
		return c.Reason
	}
	return ""
}

// Broken reports whether the status of an instance shows a problem that waiting does not solve: it cannot start, or it is
// not healthy. Explain says what to do.
func Broken(i *bergv1.ChallengeInstance) bool {
	c := firstProblem(i)
	switch {
	case i.Status.Phase == bergv1.PhaseFailed:
		return true
	case c == nil || c.Reason == bergv1.ReasonFrozen:
		return false
	default:
		return explain(c).level == Problem
	}
}

func firstProblem(i *bergv1.ChallengeInstance) *metav1.Condition {
	for _, name := range bergv1.ProblemConditions {
		c := meta.FindStatusCondition(i.Status.Conditions, name)
		if c == nil || c.Status != metav1.ConditionFalse || i.Status.InstanceID != "" && c.Reason == bergv1.ReasonChallengeMissing {
			continue // without its Challenge, a started instance keeps running
		}
		return c
	}
	if c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionNamespaceDeleted); c != nil && c.Reason == bergv1.ReasonDeletionBlocked {
		return c
	}
	return nil
}
