package challenge

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/elapsed"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions of events: what the operator was doing.
const (
	actionCreate  = "Create"
	actionObserve = "Observe"
	actionDelete  = "Delete"
)

// report tells what changed between two statuses of a live challenge, each thing once. began
// is when the pass did.
func (r *Reconciler) report(before *hexactfv1.Challenge, out Outcome, began time.Time) {
	c := out.Challenge
	was, is := before.Status, c.Status
	if was.RunningAt == nil && is.RunningAt != nil {
		text := "The challenge runs"
		if is.Endpoint != 0 {
			text = fmt.Sprintf("The challenge runs and is reached at node port %d", is.Endpoint)
		}
		timeToRunning.Observe(elapsed.SinceCreation(c.CreationTimestamp.Time, is.StartedAt.Time, began).Seconds())
		reconcile.Normal(r.Events, c, hexactfv1.ReasonRunning, actionObserve, text)
	}
	if was.Endpoint != 0 && is.Endpoint != was.Endpoint {
		reconcile.Warning(r.Events, c, hexactfv1.ReasonEndpointChanged, actionCreate,
			fmt.Sprintf("The node port %d was taken by somebody else while the Service was not there: the challenge is reached at %d now", was.Endpoint, is.Endpoint))
	}
	for _, problem := range troubles(was.Conditions, is.Conditions) {
		reconcile.Warning(r.Events, c, problem.Reason, actionObserve, problem.Message)
	}
}

// troubles returns the conditions that became False, or are so for another reason than before.
// What is as it should be is no trouble.
func troubles(before, after []metav1.Condition) []metav1.Condition {
	var news []metav1.Condition
	for _, c := range after {
		if c.Status != metav1.ConditionFalse || !conditions.Transitioned(before, c) ||
			c.Reason == hexactfv1.ReasonStarting || c.Reason == hexactfv1.ReasonWaiting {
			continue
		}
		news = append(news, c)
	}
	return news
}

// reportEnding tells, once, that a challenge ends.
func (r *Reconciler) reportEnding(before, c *hexactfv1.Challenge, now time.Time) {
	if at := before.Status.StartedAt; at != nil {
		lifetimes.Observe(elapsed.Since(at.Time, now).Seconds())
	}
	reconcile.Normal(r.Events, c, hexactfv1.ReasonTerminating, actionDelete, "The challenge is being deleted")
}
