package prepull

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// actionPull is the action of every event: what the operator was doing.
const actionPull = "Pull"

// report tells that the images of a Challenge are there, or cannot be pulled.
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
