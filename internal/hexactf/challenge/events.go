package challenge

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionCreate  = "Create"
	actionObserve = "Observe"
	actionDelete  = "Delete"
)

// report records the differences between two statuses of a live challenge as events, except problems. began is the
// start of the reconciliation.
func (r *Reconciler) report(_ context.Context, before, c *hexactfv1.Challenge, _ Outcome, _ outcome.Problems, began time.Time) {
	r.reportDropped(before, c)
	was, current := before.Status, c.Status
	if was.RunningAt == nil && current.RunningAt != nil {
		text := "The challenge runs"
		if current.Endpoint != 0 {
			text = fmt.Sprintf("The challenge runs at node port %d", current.Endpoint)
		}
		timeToRunning.Observe(reconcile.ElapsedSinceCreation(c.CreationTimestamp.Time, current.StartedAt.Time, began).Seconds())
		reconcile.Normal(r.Events, c, hexactfv1.ReasonRunning, actionObserve, text)
	}
	if was.Endpoint != 0 && current.Endpoint != was.Endpoint {
		reconcile.Warning(r.Events, c, hexactfv1.ReasonEndpointChanged, actionCreate,
			fmt.Sprintf("Another Service took node port %d while the Service of this challenge was missing. Players now reach the challenge at node port %d", was.Endpoint, current.Endpoint))
	}
	// Not Ready, since that repeats another condition.
	for _, conditionType := range []string{hexactfv1.ConditionAvailable, hexactfv1.ConditionNotifying} {
		if now := meta.FindStatusCondition(current.Conditions, conditionType); now != nil && now.Status == metav1.ConditionFalse && now.Reason != hexactfv1.ReasonStarting {
			r.kind.Warn(before, c, now.Type, now.Reason, actionObserve, now.Message)
		}
	}
}

// reportDropped reports the messages that were given up between two statuses because the outbox was full.
func (r *Reconciler) reportDropped(before, c *hexactfv1.Challenge) {
	if n := dropped(&before.Status, &c.Status, r.deliveries.get(c).Acknowledged); n > 0 {
		lost.Add(float64(n))
		reconcile.Warning(r.Events, c, hexactfv1.ReasonMessagesLost, actionObserve,
			fmt.Sprintf("More than %d messages wait for the broker. %d of them were dropped; the first and the latest messages were kept", maxOutbox, n))
	}
}

// reportTerminating records, once, that a challenge is being deleted.
func (r *Reconciler) reportTerminating(before, c *hexactfv1.Challenge, now time.Time) {
	if started := before.Status.StartedAt; started != nil {
		lifetimes.Observe(reconcile.Elapsed(started.Time, now).Seconds())
	}
	reconcile.Normal(r.Events, c, hexactfv1.ReasonTerminating, actionDelete, "The challenge is being deleted")
	// Kubernetes may have removed that finalizer from what the status was written to.
	if slices.Contains(before.Finalizers, metav1.FinalizerOrphanDependents) {
		reconcile.Warning(r.Events, c, hexactfv1.ReasonOrphaned, actionDelete, fmt.Sprintf(
			"The Challenge is deleted with --cascade=orphan: its Deployments and Services stay until the player starts this problem again. Its pods are stopped if it is isolated, and keep running otherwise. To delete the rest now: kubectl delete deployments,services -n %s -l %s=%s",
			c.Namespace, hexactfv1.LabelPartOf, partOfLabel(c.Name)))
	}
}
