package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Frozen reports whether a Challenge or an instance has the annotation that freezes it: no new
// instance of the Challenge starts, or the instance does not expire.
func Frozen(o client.Object) bool { return o.GetAnnotations()[bergv1.AnnotationFrozen] != "" }

// challengeIsNotFrozen blocks only instances that were not started. Live ones are repaired and
// rolled out as always.
func challengeIsNotFrozen(c Candidate) *outcome.Problem {
	if c.Pinned != nil || c.Challenge == nil || !Frozen(c.Challenge) {
		return nil
	}
	return &outcome.Problem{
		Condition: bergv1.ConditionChallengeFound, Reason: bergv1.ReasonFrozen, Class: outcome.Waiting,
		Message: fmt.Sprintf("Challenge %s is frozen. This instance starts when the annotation %s is removed from the Challenge", c.Key, bergv1.AnnotationFrozen),
	}
}

// alive is the condition NamespaceDeleted of an instance that is not being deleted.
func alive(i *bergv1.ChallengeInstance) metav1.Condition {
	reason, message := bergv1.ReasonLive, "The instance is not being deleted"
	if Frozen(i) {
		reason, message = bergv1.ReasonFrozen, "The instance is frozen. It does not expire until the annotation "+bergv1.AnnotationFrozen+" is removed"
	}
	return Condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, reason, message)
}
