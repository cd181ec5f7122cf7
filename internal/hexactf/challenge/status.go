package challenge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// Delivery is what the sender knows of the messages of one challenge.
type Delivery struct {
	// Off: there is no broker.
	Off bool
	// Acknowledged is the sequence number up to which the broker has acknowledged.
	Acknowledged int64
	// Problem is why the next message is not acknowledged, "" if there is no problem.
	Problem string
}

// computeStatus computes the status of a live challenge from an outcome, except the fields that kit/reconcile writes.
func computeStatus(out Outcome, cfg config.HexaCTF, now time.Time) reconcile.Ready {
	c := out.Challenge
	if out.Inherited {
		return computeInherited(c, out.Definition, out.Delivery, now)
	}
	s := &c.Status
	// They are read before they are written: deliver compares them.
	was, before := s.CurrentStatus.State, s.Endpoint
	identify(c, out.Definition, now)
	late := startDeadlinePassed(c, cfg, now)
	ready, missing := checkAvailability(out)
	if s.RunningAt == nil && ready {
		s.RunningAt = &metav1.Time{Time: now}
		if s.RunningAt.Before(s.StartedAt) {
			s.RunningAt = s.StartedAt.DeepCopy() // the clock was put back since
		}
	}
	if out.Endpoint != 0 {
		s.Endpoint = out.Endpoint // long before Running: the platform does not wait for that
	}
	s.CurrentStatus = currentStatus(out, late, missing)
	restartTimeout(out, now)
	set := conditions.NewSetter(c, &s.Conditions, now)
	set(definitionFound(out))
	set(resourcesCreated(out))
	set(availability(out, ready, late, missing))
	set(notifying(out.Delivery))
	moved := was == hexactfv1.StateRunning && s.CurrentStatus.State == was && before != s.Endpoint
	// Last, because the message has the state and the endpoint of this status.
	deliver(s, out.Delivery, was, moved, now)
	return computeReady(c, out.Problem)
}

// computeReady is about the objects of a challenge alone: a broker that does not answer does not make it unready. A person
// must act in state Error, and after the start if the problem asks for it.
func computeReady(c *hexactfv1.Challenge, p *outcome.Problem) reconcile.Ready {
	if p != nil {
		return reconcile.ReadyUnless(p, "", "")
	}
	isAvailable := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionAvailable)
	return reconcile.Ready{
		Status: isAvailable.Status, Reason: isAvailable.Reason, Message: isAvailable.Message,
		Stalled: c.Status.CurrentStatus.State == hexactfv1.StateError,
	}
}

// reported is the readiness that the status of a challenge shows already, while nothing else is reported.
func reported(c *hexactfv1.Challenge) reconcile.Ready {
	if meta.IsStatusConditionTrue(c.Status.Conditions, hexactfv1.ConditionResourcesCreated) {
		return computeReady(c, nil)
	}
	return computeReady(c, beingBuilt)
}

// identify writes once which challenge this is. definition is nil where none was found. Until the start, a definition
// that was found decides how long the challenge lives, even if nothing can be built from it: a shared challenge must not
// expire while its definition is being fixed. Once the challenge was started, nothing of it changes.
func identify(c *hexactfv1.Challenge, definition *hexactfv1.ChallengeDefinition, now time.Time) {
	s := &c.Status
	if s.StartedAt == nil {
		s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	id := challengeIdentity(c)
	s.ChallengeID, s.User = id.ChallengeID, id.User
	switch {
	case s.DefinitionSnapshot != nil && (s.ExpiresAt != nil || s.IsOne):
	case definition != nil:
		setExpiry(s, definition)
	case s.ExpiresAt == nil && !s.IsOne:
		setExpiry(s, nil)
	}
}

// deliver removes the acknowledged messages, and records a message about a new state, or about a new endpoint of a
// running challenge.
func deliver(s *hexactfv1.ChallengeStatus, d Delivery, was hexactfv1.State, moved bool, now time.Time) {
	removeAcknowledged(s, d.Acknowledged)
	state, sent := messageState(s.CurrentStatus.State)
	if d.Off || !sent || was == s.CurrentStatus.State && !moved {
		return
	}
	record(s, state, now)
}

// currentStatus is the state of a live challenge. One that has run stays Running: later problems show in its
// conditions and end no player's game. RunningAt is never removed, so the state does not go back.
func currentStatus(out Outcome, late bool, missing string) hexactfv1.CurrentStatus {
	p, s := out.Problem, out.Challenge.Status
	status := hexactfv1.CurrentStatus{State: hexactfv1.StateCreating}
	wrong := p != nil && (p.Class == outcome.Blocked || p.Class == outcome.External || p.Class == outcome.Retry)
	if wrong {
		status.ErrorMsg = conditions.Bound(p.Message)
	}
	switch {
	case s.RunningAt != nil:
		status.State = hexactfv1.StateRunning
	case wrong && p.Class != outcome.Retry:
		status.State = hexactfv1.StateError
	case late:
		status.State = hexactfv1.StateError
		status.ErrorMsg = cmp.Or(status.ErrorMsg, conditions.Bound(lateMessage(missing)))
	}
	return status
}

func lateMessage(missing string) string {
	return "The Deployments did not become available within HEXACTF_START_DEADLINE. " + missing
}

// buildingSince is since when there has been a definition to build a challenge from, now if there was none before. It
// may be long after the first reconciliation: the definition may have been created late, and another operator may have
// started before.
func buildingSince(c *hexactfv1.Challenge, now time.Time) time.Time {
	found := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionDefinitionFound)
	if found == nil || found.Status != metav1.ConditionTrue {
		return now
	}
	return found.LastTransitionTime.Time
}

// missingSince is since when a challenge has had no definition, nil if its conditions do not say so.
func missingSince(c *hexactfv1.Challenge) *time.Time {
	found := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionDefinitionFound)
	if found == nil || found.Reason != hexactfv1.ReasonDefinitionNotFound {
		return nil
	}
	return &found.LastTransitionTime.Time
}

// restartTimeout moves the time of DefinitionFound when the condition is about to say that there is no definition, and
// said before that the definition is invalid. Else the time moves only with the status of the condition, and a challenge
// whose invalid definition is deleted to be replaced would be given up immediately.
func restartTimeout(out Outcome, now time.Time) {
	c := out.Challenge
	if out.Problem == nil || out.Problem.Reason != hexactfv1.ReasonDefinitionNotFound || missingSince(c) != nil {
		return
	}
	if old := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionDefinitionFound); old != nil && old.LastTransitionTime.Time.Before(now) {
		old.LastTransitionTime = metav1.Time{Time: now}
	}
}

// startDeadline is when a challenge that never ran is in Error; nil for never.
func startDeadline(c *hexactfv1.Challenge, cfg config.HexaCTF, now time.Time) *time.Time {
	if c.Status.StartedAt == nil || c.Status.RunningAt != nil || c.Status.DefinitionSnapshot == nil {
		return nil
	}
	deadline := buildingSince(c, now).Add(cfg.StartDeadline)
	return &deadline
}

func startDeadlinePassed(c *hexactfv1.Challenge, cfg config.HexaCTF, now time.Time) bool {
	deadline := startDeadline(c, cfg, now)
	return deadline != nil && !now.Before(*deadline)
}

// quietStart is how long nothing but the endpoint is reported of a start between its begin and its end. Most starts take
// less, also where a hundred challenges start concurrently, and every write that is left out shortens the wait of the others.
const quietStart = 10 * time.Second

// quietFor is how much longer a start needs no report, zero if there is something to report now. A start that has a problem, or
// is over, is reported immediately.
func quietFor(out Outcome, cfg config.HexaCTF, now time.Time) time.Duration {
	c := out.Challenge
	ready, _ := checkAvailability(out)
	if c.Status.CurrentStatus.State != hexactfv1.StateCreating || out.Problem != nil || ready ||
		out.Endpoint != 0 && out.Endpoint != c.Status.Endpoint ||
		slices.ContainsFunc(out.Pods, func(p corev1.Pod) bool { return trouble(&p) != "" }) {
		return 0
	}
	until := buildingSince(c, now).Add(quietStart)
	if deadline := startDeadline(c, cfg, now); deadline != nil && deadline.Before(until) {
		until = *deadline
	}
	return max(until.Sub(now), 0)
}

// requeueAfter is after how long time alone changes the outcome, zero for never.
func requeueAfter(out Outcome, cfg config.HexaCTF, now time.Time) time.Duration {
	c := out.Challenge
	if p := out.Problem; p != nil && p.Reason == hexactfv1.ReasonDefinitionNotFound {
		if since := missingSince(c); since != nil {
			return max(since.Add(cfg.DefinitionTimeout).Sub(now), 0)
		}
		return cfg.DefinitionTimeout
	}
	if deadline := startDeadline(c, cfg, now); deadline != nil && c.Status.CurrentStatus.State != hexactfv1.StateError {
		return max(deadline.Sub(now), 0)
	}
	return 0
}

// on reports whether an outcome was stopped by a problem of a condition.
func (out Outcome) on(conditionType string) bool {
	return out.Problem != nil && out.Problem.Condition == conditionType
}

func definitionFound(out Outcome) (condition string, _ metav1.ConditionStatus, reason, message string) {
	condition = hexactfv1.ConditionDefinitionFound
	if out.on(condition) {
		return condition, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message
	}
	return condition, metav1.ConditionTrue, hexactfv1.ReasonDefinitionFound, "The challenge runs the definition as it was at the start"
}

// resourcesCreated is Unknown while a step before it has the problem.
func resourcesCreated(out Outcome) (condition string, _ metav1.ConditionStatus, reason, message string) {
	condition = hexactfv1.ConditionResourcesCreated
	switch p := out.Problem; {
	case p == nil:
		return condition, metav1.ConditionTrue, hexactfv1.ReasonResourcesCreated, "All objects are in place"
	case !out.on(condition):
		return condition, metav1.ConditionUnknown, hexactfv1.ReasonWaiting, "Waiting for " + p.Condition
	case p.Class == outcome.InProgress:
		return condition, metav1.ConditionUnknown, p.Reason, p.Message
	default:
		return condition, metav1.ConditionFalse, p.Reason, p.Message
	}
}

// availability distinguishes a challenge that never was available from one that no longer is, and one that is late from one that
// still has time.
func availability(out Outcome, ready, late bool, missing string) (condition string, _ metav1.ConditionStatus, reason, message string) {
	condition = hexactfv1.ConditionAvailable
	switch {
	case ready:
		return condition, metav1.ConditionTrue, hexactfv1.ReasonAvailable, "All Deployments are available"
	case out.Problem != nil:
		return condition, metav1.ConditionUnknown, hexactfv1.ReasonWaiting, "Waiting for " + out.Problem.Condition
	case out.Challenge.Status.RunningAt != nil:
		return condition, metav1.ConditionFalse, hexactfv1.ReasonUnavailable, missing
	case late:
		return condition, metav1.ConditionFalse, hexactfv1.ReasonStartDeadlineExceeded, lateMessage(missing)
	default:
		return condition, metav1.ConditionFalse, hexactfv1.ReasonStarting, missing
	}
}

// notifying is about messages that the broker does not take. A message that is being sent is not reported, since each
// would cost a write of the status.
func notifying(d Delivery) (condition string, _ metav1.ConditionStatus, reason, message string) {
	condition = hexactfv1.ConditionNotifying
	switch {
	case d.Off:
		return condition, metav1.ConditionTrue, hexactfv1.ReasonNotifyOff, "No messages are sent: KAFKA_BROKERS is empty"
	case d.Problem != "":
		return condition, metav1.ConditionFalse, hexactfv1.ReasonNotifyFailed, "A message cannot be sent; retrying: " + d.Problem
	default:
		return condition, metav1.ConditionTrue, hexactfv1.ReasonNotifying, "No message is delayed"
	}
}

// checkAvailability reports whether players can reach the challenge: all Deployments are available, and the endpoint
// is known if there is one. missing names the part that is not.
func checkAvailability(out Outcome) (ready bool, missing string) {
	if out.Problem != nil || out.Started == nil {
		return false, ""
	}
	var all []string
	for i, component := range out.Started.Components {
		if i >= len(out.Deployments) || !available(out.Deployments[i]) {
			var d *appsv1.Deployment
			if i < len(out.Deployments) {
				d = out.Deployments[i]
			}
			all = append(all, fmt.Sprintf("Component %s: %s", component.Name, whyNot(component.Name, d, out.Pods)))
		}
	}
	if exposedComponent(out.Started.Components) >= 0 && out.Endpoint == 0 {
		all = append(all, "The node port is not known yet")
	}
	return len(all) == 0, strings.Join(all, "; ")
}

// available reports whether a Deployment is available according to its controller, which has seen its present spec.
func available(d *appsv1.Deployment) bool {
	return d != nil && d.Status.ObservedGeneration >= d.Generation && findCondition(d, appsv1.DeploymentAvailable).Status == corev1.ConditionTrue
}

func findCondition(d *appsv1.Deployment, conditionType appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	index := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == conditionType })
	if index < 0 {
		return appsv1.DeploymentCondition{}
	}
	return d.Status.Conditions[index]
}

// replicaSetCreateError is the reason of a Deployment for which no ReplicaSet can be made.
const replicaSetCreateError = "ReplicaSetCreateError"

// whyNot says why a Deployment is not available, as far as is known: the problem of one of its pods, or why the API
// server refuses them.
func whyNot(component string, d *appsv1.Deployment, pods []corev1.Pod) string {
	if d == nil {
		return "its Deployment does not exist yet"
	}
	for i := range pods {
		if pods[i].Labels[hexactfv1.LabelName] != component {
			continue
		}
		if problem := trouble(&pods[i]); problem != "" {
			return problem
		}
	}
	if c := findCondition(d, appsv1.DeploymentReplicaFailure); c.Status == corev1.ConditionTrue {
		return refusal.Annotate(c.Message)
	}
	if c := findCondition(d, appsv1.DeploymentProgressing); c.Status == corev1.ConditionFalse && c.Reason == replicaSetCreateError {
		return refusal.Annotate(c.Message)
	}
	return "its pods are not ready yet"
}

// trouble returns why a pod cannot start, "" if no problem is known.
func trouble(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return ""
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := podstate.Stuck(s); w != nil {
			text := fmt.Sprintf("container %s: %s", s.Name, strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			if last := s.LastTerminationState.Terminated; last != nil {
				text += fmt.Sprintf("; its last exit code was %d (%s)", last.ExitCode, cmp.Or(last.Reason, "no reason"))
			}
			return text
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// computeInherited writes the status of a challenge that another operator has started. definition is nil if it does
// not exist, or the challenge was inherited before.
func computeInherited(c *hexactfv1.Challenge, definition *hexactfv1.ChallengeDefinition, d Delivery, now time.Time) reconcile.Ready {
	s := &c.Status
	if s.RunningAt == nil {
		setExpiry(s, definition)
		s.RunningAt = s.StartedAt.DeepCopy()
	}
	identify(c, nil, now)
	s.CurrentStatus.ErrorMsg = ""
	const unknown = "Another operator started this challenge and did not record its objects. It keeps running until its end and is not repaired"
	set := conditions.NewSetter(c, &s.Conditions, now)
	set(hexactfv1.ConditionDefinitionFound, metav1.ConditionTrue, hexactfv1.ReasonInherited, "Another operator started this challenge")
	set(hexactfv1.ConditionResourcesCreated, metav1.ConditionUnknown, hexactfv1.ReasonInherited, unknown)
	set(hexactfv1.ConditionAvailable, metav1.ConditionUnknown, hexactfv1.ReasonInherited, unknown)
	set(notifying(d))
	removeAcknowledged(s, d.Acknowledged)
	return computeReady(c, nil)
}

// computeTerminating writes the status of a challenge that is being deleted.
func computeTerminating(c *hexactfv1.Challenge, d Delivery, now time.Time) {
	s := &c.Status
	was := s.CurrentStatus.State
	id := challengeIdentity(c)
	s.ChallengeID, s.User = id.ChallengeID, id.User
	s.ObservedGeneration = c.Generation
	s.CurrentStatus.State = hexactfv1.StateTerminating
	const terminating = "The Challenge is being deleted. Its network policies stay until its last pod is gone"
	set := conditions.NewSetter(c, &s.Conditions, now)
	set(hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonTerminating, terminating)
	set(notifying(d))
	for _, step := range []string{hexactfv1.ConditionDefinitionFound, hexactfv1.ConditionResourcesCreated} {
		if meta.FindStatusCondition(s.Conditions, step) == nil { // it was never checked
			set(step, metav1.ConditionUnknown, hexactfv1.ReasonTerminating, terminating)
		}
	}
	reconcile.NotReady(hexactfv1.ReasonTerminating, terminating).SetOn(&s.Conditions, c.Generation, now)
	deliver(s, d, was, false, now)
}
