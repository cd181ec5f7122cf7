package prepull

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// actionPull is the action that every event names: the operator was pulling.
const actionPull = "Pull"

// report records an event when the images of a Challenge are pulled, or cannot be pulled.
func (r *Reconciler) report(c *bergv1.Challenge) {
	now := apimeta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionImagesReady)
	if now == nil {
		return
	}
	switch now.Reason {
	case bergv1.ImagesPulled:
		reconcile.Normal(r.Events, c, now.Reason, actionPull, "The images are on every node that may run them: "+now.Message)
	case bergv1.ImagesPullFailed, bergv1.ImagesNoNode:
		reconcile.Warning(r.Events, c, now.Reason, actionPull, now.Message)
	}
}
