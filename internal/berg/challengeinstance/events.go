package challengeinstance

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/elapsed"
)

// The actions of events: what the operator was doing.
const (
	actionCreate    = "Create"
	actionObserve   = "Observe"
	actionTerminate = "Terminate"
)

// reportStarted tells, once, that an instance is being built.
func (r *Reconciler) reportStarted(before, instance *bergv1.ChallengeInstance) {
	if before.Status.InstanceID != "" {
		return
	}
	created.WithLabelValues(perChallenge.label(instance.Spec.ChallengeRef.Name, true)).Inc()
	r.Events.Eventf(instance, nil, corev1.EventTypeNormal, bergv1.ReasonInstanceCreating, actionCreate, "Creating challenge instance")
}

// report tells what changed between two statuses of a live instance, of which the later
// is as of now.
func (r *Reconciler) report(before *bergv1.ChallengeInstance, out Outcome, now time.Time) {
	instance := out.Instance
	if before.Status.ReadyAt == nil && instance.Status.ReadyAt != nil {
		challenge := perChallenge.label(instance.Spec.ChallengeRef.Name, out.Challenge != nil)
		timeToRunning.WithLabelValues(challenge).Observe(elapsed.SinceCreation(instance.CreationTimestamp.Time, begun(instance), now).Seconds())
		r.Events.Eventf(instance, nil, corev1.EventTypeNormal, bergv1.ReasonInstanceReady, actionObserve, "Instance ready and accessible")
	}
	for _, text := range moved(before.Status.Services, instance.Status.Services) {
		r.Events.Eventf(instance, nil, corev1.EventTypeWarning, bergv1.ReasonNodePortTaken, actionCreate, "%s", text)
	}
	for _, c := range troubles(before.Status.Conditions, instance.Status.Conditions) {
		r.Events.Eventf(instance, nil, corev1.EventTypeWarning, c.Reason, actionObserve, "%s", note(instance, c))
	}
}

// troubles returns the conditions that became False, or are so for another reason
// than before. What is as it should be is no trouble: to wait for something that
// is under way, to be alive, to keep the Challenge that one was started with.
func troubles(before, after []metav1.Condition) []metav1.Condition {
	var news []metav1.Condition
	for _, c := range after {
		old := meta.FindStatusCondition(before, c.Type)
		switch {
		case c.Status != metav1.ConditionFalse, old != nil && old.Status == c.Status && old.Reason == c.Reason:
		case c.Type == bergv1.ConditionUpToDate, c.Type == bergv1.ConditionNamespaceDeleted:
		case c.Reason == bergv1.ReasonOwnerBusy, c.Reason == bergv1.ReasonWaiting:
		default:
			news = append(news, c)
		}
	}
	return news
}

// note is the text of a condition's event.
func note(instance *bergv1.ChallengeInstance, c metav1.Condition) string {
	switch c.Reason {
	case bergv1.ReasonChallengeMissing:
		return "Challenge " + instance.Spec.ChallengeRef.Name + " not found"
	case bergv1.ReasonFlagMissing:
		return "Flag required but not provided"
	}
	// Longer notes are refused by the API server. The flag goes first: half of it
	// would not be found.
	const longest = 1024
	message := redact(c.Message, instance.Spec.Flag)
	return strings.ToValidUTF8(message[:min(len(message), longest)], "")
}

// reportEnding tells, once, why an instance ends, and counts one that is over.
func (r *Reconciler) reportEnding(before, instance *bergv1.ChallengeInstance, now time.Time) {
	was, is := before.Status.Phase, instance.Status.Phase
	if was != bergv1.PhaseTerminating && was != bergv1.PhaseTerminated {
		// One without a reason was deleted by somebody.
		reason := cmp.Or(instance.Spec.TerminationReason, bergv1.TerminationUserRequest)
		r.Events.Eventf(instance, nil, corev1.EventTypeNormal, bergv1.ReasonInstanceEnding, actionTerminate, "Terminating due to %s", reason)
		if reason == bergv1.TerminationTimeout {
			timeouts.Inc()
		}
	}
	if was != is && is == bergv1.PhaseTerminated && instance.Status.StartedAt != nil {
		lifetimes.Observe(elapsed.Since(begun(instance), now).Seconds())
	}
}
