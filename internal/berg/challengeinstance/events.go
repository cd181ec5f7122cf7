package challengeinstance

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
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
	created.WithLabelValues(instance.Spec.ChallengeRef.Name).Inc()
	r.Events.Eventf(instance, nil, corev1.EventTypeNormal, bergv1.ReasonInstanceCreating, actionCreate, "Creating challenge instance")
}

// report tells what changed between two statuses of a live instance.
func (r *Reconciler) report(before, instance *bergv1.ChallengeInstance, out Outcome) {
	if before.Status.ReadyAt == nil && instance.Status.ReadyAt != nil {
		timeToRunning.WithLabelValues(instance.Spec.ChallengeRef.Name).Observe(instance.Status.ReadyAt.Sub(instance.CreationTimestamp.Time).Seconds())
		r.Events.Eventf(instance, nil, corev1.EventTypeNormal, bergv1.ReasonInstanceReady, actionObserve, "Instance ready and accessible")
	}
	if p := out.Problem; p != nil && p.Class != Waiting && isNews(before, p.Condition, p.Reason) {
		r.Events.Eventf(instance, nil, corev1.EventTypeWarning, p.Reason, actionCreate, "%s", note(instance, p))
	}
	for _, text := range moved(before.Status.Services, instance.Status.Services) {
		r.Events.Eventf(instance, nil, corev1.EventTypeWarning, bergv1.ReasonNodePortTaken, actionCreate, "%s", text)
	}
	healthy := meta.FindStatusCondition(instance.Status.Conditions, bergv1.ConditionHealthy)
	if healthy != nil && healthy.Status == "False" && isNews(before, healthy.Type, healthy.Reason) {
		r.Events.Eventf(instance, nil, corev1.EventTypeWarning, healthy.Reason, actionObserve, "%s", healthy.Message)
	}
}

// isNews reports whether a condition did not have a reason before.
func isNews(before *bergv1.ChallengeInstance, conditionType, reason string) bool {
	c := meta.FindStatusCondition(before.Status.Conditions, conditionType)
	return c == nil || c.Reason != reason
}

// note is the text of a problem's event.
func note(instance *bergv1.ChallengeInstance, p *Problem) string {
	switch p.Reason {
	case bergv1.ReasonChallengeMissing:
		return "Challenge " + instance.Spec.ChallengeRef.Name + " not found"
	case bergv1.ReasonFlagMissing:
		return "Flag required but not provided"
	}
	// Longer notes are refused by the API server.
	const longest = 1024
	return p.Message[:min(len(p.Message), longest)]
}

// reportEnding tells, once, why an instance ends.
func (r *Reconciler) reportEnding(before, instance *bergv1.ChallengeInstance) {
	if p := before.Status.Phase; p == bergv1.PhaseTerminating || p == bergv1.PhaseTerminated {
		return
	}
	reason := instance.Spec.TerminationReason
	if reason == "" {
		reason = bergv1.TerminationUserRequest // somebody deleted it
	}
	r.Events.Eventf(instance, nil, corev1.EventTypeNormal, bergv1.ReasonInstanceEnding, actionTerminate, "Terminating due to %s", reason)
}

// reportEnded counts an instance whose namespace is gone.
func (r *Reconciler) reportEnded(before, instance *bergv1.ChallengeInstance) {
	if before.Status.Phase == bergv1.PhaseTerminated || instance.Status.StartedAt == nil {
		return
	}
	lifetimes.Observe(instance.Status.TerminatedAt.Sub(instance.Status.StartedAt.Time).Seconds())
}
