package challengeinstance

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions in events.
const (
	actionCreate    = "Create"
	actionObserve   = "Observe"
	actionTerminate = "Terminate"
)

// WithSource returns a recorder whose events about instances name the user or team of a platform that they belong to.
func WithSource(to events.EventRecorder) events.EventRecorder { return sourceRecorder{to} }

type sourceRecorder struct{ events.EventRecorder }

// Eventf records an event as the embedded recorder does. It adds the source to the text, and shortens the text before it,
// so that the source is never cut off.
func (r sourceRecorder) Eventf(about, related runtime.Object, kind, reason, action, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if i, ok := about.(*bergv1.ChallengeInstance); ok && i.Labels[bergv1.LabelSource] != "" {
		suffix := " (source " + i.Labels[bergv1.LabelSource] + ")"
		text = conditions.Shorten(text, conditions.MaxNote-len(suffix)) + suffix
	}
	r.EventRecorder.Eventf(about, related, kind, reason, action, "%s", text)
}

// reportStarted reports that an instance is being built.
func (r *Reconciler) reportStarted(instance *bergv1.ChallengeInstance) {
	if r.isPrepared(instance) {
		return // it counts when a player gets it
	}
	created.WithLabelValues(perChallenge.label(instance.Spec.ChallengeRef.Name, true)).Inc()
	reconcile.Normal(r.Events, instance, bergv1.ReasonInstanceCreating, actionCreate, "Creating challenge instance")
}

// report reports what changed between two statuses of a live instance, except problems, which the frame reports. The later
// one is as of now.
func (r *Reconciler) report(before *bergv1.ChallengeInstance, out status.Outcome, problems outcome.Problems, now time.Time) {
	instance := out.Instance
	if before.Status.ReadyAt == nil && instance.Status.ReadyAt != nil && !out.Prepared {
		challenge := perChallenge.label(instance.Spec.ChallengeRef.Name, out.Challenge != nil)
		timeToRunning.WithLabelValues(challenge).Observe(reconcile.ElapsedSinceCreation(instance.CreationTimestamp.Time, view.StartedAt(instance), now).Seconds())
		for _, stage := range view.Stages(instance) {
			startStages.WithLabelValues(stage.Name).Observe(stage.Took.Seconds())
		}
		reconcile.Normal(r.Events, instance, bergv1.ReasonInstanceReady, actionObserve, "Instance ready and accessible")
	}
	for _, text := range manifests.MovedNodePorts(before.Status.Services, instance.Status.Services) {
		reconcile.Warning(r.Events, instance, bergv1.ReasonNodePortTaken, actionCreate, text)
	}
	for _, c := range newProblems(before.Status.Conditions, instance.Status.Conditions) {
		if problems.On(c.Type) != nil {
			continue // the frame reports it
		}
		reconcile.Warning(r.Events, instance, c.Reason, actionObserve, note(instance, c))
	}
}

// newProblems returns the conditions that became False, or changed their reason while False. A
// normal state is no problem: waiting for something in progress, not being deleted, keeping
// the Challenge of the start.
func newProblems(before, after []metav1.Condition) []metav1.Condition {
	var added []metav1.Condition
	for _, c := range after {
		switch {
		case c.Status != metav1.ConditionFalse, !conditions.Transitioned(before, c):
		case c.Type == bergv1.ConditionUpToDate, c.Type == bergv1.ConditionNamespaceDeleted:
		case c.Reason == bergv1.ReasonOwnerBusy, c.Reason == bergv1.ReasonWaiting, c.Reason == bergv1.ReasonFrozen, c.Reason == bergv1.ReasonQueued,
			c.Reason == bergv1.ReasonStarting:
		default:
			added = append(added, c)
		}
	}
	return added
}

// note is the text of the event of a condition, of any length.
func note(instance *bergv1.ChallengeInstance, c metav1.Condition) string {
	switch c.Reason {
	case bergv1.ReasonChallengeMissing:
		return "Challenge " + instance.Spec.ChallengeRef.Name + " not found"
	case bergv1.ReasonFlagMissing:
		return "Flag required but not provided"
	}
	return redact.Text(c.Message, instance.Spec.Flag)
}

// reportTerminating reports, once, why an instance terminates, and counts expired instances. The status shows which phases
// were reported; if the status cannot be written, the process remembers them.
func (r *Reconciler) reportTerminating(ctx context.Context, before, instance *bergv1.ChallengeInstance, now time.Time) {
	was, current := before.Status.Phase, instance.Status.Phase
	if was != bergv1.PhaseTerminating && was != bergv1.PhaseTerminated && r.terminations.isFirstReport(instance, bergv1.PhaseTerminating) {
		reason := cmp.Or(instance.Spec.TerminationReason, r.apparentReason(ctx, instance))
		reconcile.Normal(r.Events, instance, bergv1.ReasonInstanceEnding, actionTerminate, fmt.Sprintf("Terminating due to %s", reason))
		if reason == bergv1.TerminationTimeout {
			timeouts.Inc()
		}
	}
	if was != current && current == bergv1.PhaseTerminated && instance.Status.StartedAt != nil && r.terminations.isFirstReport(instance, bergv1.PhaseTerminated) {
		lifetimes.Observe(reconcile.Elapsed(view.StartedAt(instance), now).Seconds())
	}
}

// apparentReason is why an instance terminates without spec.terminationReason: the API server
// may have rejected the reason, and the operator may have restarted since.
func (r *Reconciler) apparentReason(ctx context.Context, instance *bergv1.ChallengeInstance) bergv1.TerminationReason {
	if reason := r.terminations.reason(instance); reason != "" {
		return reason
	}
	if expiry := status.EndsAt(instance, r.Config.Challenge); expiry != nil && !instance.DeletionTimestamp.Time.Before(expiry.Time) {
		return bergv1.TerminationTimeout
	}
	if r.Config.Challenge.WithdrawalPolicy == config.WithdrawalStop {
		if c, err := r.observeCandidate(ctx, instance); err == nil && status.Withdrawn(c) {
			return bergv1.TerminationAdmin
		}
	}
	return bergv1.TerminationUserRequest // a user deleted it
}

// terminations records facts about terminating instances that their status may lack: why the operator deleted them, and
// which phases were reported. A record is removed when its instance is gone. The zero value is ready for use.
type terminations struct {
	mu  sync.Mutex
	all map[types.NamespacedName]termination
}

type termination struct {
	uid      types.UID
	reason   bergv1.TerminationReason // "" if a user deleted it, or if spec.terminationReason is set
	reported bergv1.Phase             // the last reported phase
}

// change updates the record of an instance. A record of an earlier instance with the same name does not count. An empty record is
// dropped, so the map has no more entries than instances that terminate without a stored reason.
func (e *terminations) change(instance *bergv1.ChallengeInstance, apply func(*termination)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := client.ObjectKeyFromObject(instance)
	known := e.all[key]
	if known.uid != instance.UID {
		known = termination{uid: instance.UID}
	}
	apply(&known)
	if e.all == nil {
		e.all = map[types.NamespacedName]termination{}
	}
	if known == (termination{uid: instance.UID}) {
		delete(e.all, key)
		return
	}
	e.all[key] = known
}

// setReason stores why the operator deletes an instance, "" if the deletion was not accepted.
func (e *terminations) setReason(instance *bergv1.ChallengeInstance, reason bergv1.TerminationReason) {
	e.change(instance, func(known *termination) { known.reason = reason })
}

// reason is why the operator deleted an instance, "" if unknown.
func (e *terminations) reason(instance *bergv1.ChallengeInstance) (reason bergv1.TerminationReason) {
	e.change(instance, func(known *termination) { reason = known.reason })
	return reason
}

// isFirstReport stores that a phase is reported, and returns whether it was not before. Phases are reported in their order.
func (e *terminations) isFirstReport(instance *bergv1.ChallengeInstance, phase bergv1.Phase) (isFirst bool) {
	e.change(instance, func(known *termination) {
		isFirst = known.reported != phase && known.reported != bergv1.PhaseTerminated
		if isFirst {
			known.reported = phase
		}
	})
	return isFirst
}

// forget removes the record of an instance that no longer exists.
func (e *terminations) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.all, key)
}
