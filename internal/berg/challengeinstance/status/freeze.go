package status

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Frozen reports whether somebody has stopped the clock of a Challenge, of which no new instance
// starts then, or of an instance, which does not expire.
func Frozen(o client.Object) bool { return o.GetAnnotations()[bergv1.AnnotationFrozen] != "" }

// challengeIsNotFrozen holds back what was not started. What lives is repaired and rolled out as
// ever.
func challengeIsNotFrozen(c Candidate) *outcome.Problem {
	if c.Pinned != nil || c.Challenge == nil || !Frozen(c.Challenge) {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonFrozen, Class: outcome.Waiting,
		Message: fmt.Sprintf("Challenge %s is frozen: this instance starts when the annotation %s is taken off the Challenge", c.Key, bergv1.AnnotationFrozen),
	}
}

// alive says of an instance that is not being deleted what keeps it.
func alive(i *bergv1.ChallengeInstance) metav1.Condition {
	reason, message := bergv1.ReasonLive, "The instance is not being deleted"
	if Frozen(i) {
		reason, message = bergv1.ReasonFrozen, "The instance is frozen: it does not expire until the annotation "+bergv1.AnnotationFrozen+" is taken off"
	}
	return Condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, reason, message)
}

// HeldByFreeze reports whether an instance says that it waits for the end of a freeze: it then
// stands in nobody's way.
func HeldByFreeze(i *bergv1.ChallengeInstance) bool {
	c := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionChallengeFound)
	return c != nil && c.Reason == bergv1.ReasonFrozen
}
