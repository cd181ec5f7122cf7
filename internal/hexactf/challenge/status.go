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
)

// Outcome is what one pass saw and did, and all that a status is derived from.
type Outcome struct {
	Observed
	// Problem is what stopped the pass; nil when every object is in place.
	Problem *outcome.Problem
	// Endpoint is the node port of the exposed component, 0 where there is none, or where it
	// is not known.
	Endpoint int32
	// Delivery is what is known of the messages.
	Delivery Delivery
}

// Delivery is what the sender knows of the messages of one challenge.
type Delivery struct {
	// Off: there is no broker.
	Off bool
	// Acknowledged is the sequence number up to which the broker has acknowledged.
	Acknowledged int64
	// Problem is why the next message is not, "" if there is nothing wrong.
	Problem string
}

// computeStatus writes into the status of a live challenge what an outcome means.
func computeStatus(out Outcome, cfg config.HexaCTF, now time.Time) {
	c := out.Challenge
	s := &c.Status
	was := s.CurrentStatus.State
	identify(c, out.Definition, now)
	s.ObservedGeneration = c.Generation
	told := s.Endpoint
	late := startDeadlinePassed(c, cfg, now)
	ready, missing := checkAvailability(out)
	if s.RunningAt == nil && ready {
		s.RunningAt = &metav1.Time{Time: now}
		if s.RunningAt.Before(s.StartedAt) {
			s.RunningAt = s.StartedAt.DeepCopy() // the clock was put back since
		}
	}
	if s.RunningAt != nil && out.Endpoint != 0 {
		s.Endpoint = out.Endpoint // not before: who sees it may go there
	}
	s.CurrentStatus = currentStatus(out, late, missing)
	found := definitionFound(out)
	beginAnew(c, found, now)
	setConditions(c, now,
		found,
		resourcesCreated(out),
		availability(out, ready, late, missing),
		notifying(out.Delivery),
	)
	moved := was == hexactfv1.StateRunning && s.CurrentStatus.State == was && told != s.Endpoint
	deliver(s, out.Delivery, was, moved, now)
}

// identify writes what makes a challenge this challenge, once. definition is nil where none was
// found. Until the start one that was found says how long the challenge lives, even if nothing
// can be built from it: a shared challenge must not expire while its definition is being mended.
func identify(c *hexactfv1.Challenge, definition *hexactfv1.ChallengeDefinition, now time.Time) {
	s := &c.Status
	if s.StartedAt == nil {
		s.StartedAt = &metav1.Time{Time: now.Truncate(time.Second)}
	}
	id := identityOf(c)
	s.ChallengeID, s.User = id.ChallengeID, id.User
	switch {
	case s.DefinitionSnapshot != nil && (s.ExpiresAt != nil || s.IsOne):
	case definition != nil:
		limit(s, definition)
	case s.ExpiresAt == nil && !s.IsOne:
		limit(s, nil)
	}
}

// deliver strikes what was acknowledged and records what is new: another state, or another
// endpoint of one that runs.
func deliver(s *hexactfv1.ChallengeStatus, d Delivery, was hexactfv1.State, moved bool, now time.Time) {
	strike(s, d.Acknowledged)
	word, tells := wordFor(s.CurrentStatus.State)
	if d.Off || !tells || was == s.CurrentStatus.State && !moved {
		return
	}
	record(s, word, now)
}

// currentStatus is where a live challenge stands. One that has run once stays Running: what is
// wrong with it since shows in its conditions, and ends nobody's game.
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
	return "The Deployments were not available within HEXACTF_START_DEADLINE. " + missing
}

// buildingSince is since when there is something to build a challenge from, which is now where
// that was not so until now. It may be long after the operator's first look: a definition may
// come late, and another operator may have begun before.
func buildingSince(c *hexactfv1.Challenge, now time.Time) time.Time {
	found := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionDefinitionFound)
	if found == nil || found.Status != metav1.ConditionTrue {
		return now
	}
	return found.LastTransitionTime.Time
}

// missingSince is since when a challenge has had no definition, nil while that is not what its
// conditions say.
func missingSince(c *hexactfv1.Challenge) *time.Time {
	found := meta.FindStatusCondition(c.Status.Conditions, hexactfv1.ConditionDefinitionFound)
	if found == nil || found.Reason != hexactfv1.ReasonDefinitionNotFound {
		return nil
	}
	return &found.LastTransitionTime.Time
}

// beginAnew moves the time of a condition that is about to say that there is no definition, and
// said before that there is a bad one. The time of a condition else moves with its status alone,
// and a definition that is deleted to be replaced would be given up at once.
func beginAnew(c *hexactfv1.Challenge, found metav1.Condition, now time.Time) {
	if found.Reason != hexactfv1.ReasonDefinitionNotFound || missingSince(c) != nil {
		return
	}
	if old := meta.FindStatusCondition(c.Status.Conditions, found.Type); old != nil && old.LastTransitionTime.Time.Before(now) {
		old.LastTransitionTime = metav1.Time{Time: now}
	}
}

// startDeadline is when a challenge that never ran is in Error; nil for never.
func startDeadline(c *hexactfv1.Challenge, cfg config.HexaCTF, now time.Time) *time.Time {
	if c.Status.StartedAt == nil || c.Status.RunningAt != nil || c.Status.DefinitionSnapshot == nil {
		return nil
	}
	at := buildingSince(c, now).Add(cfg.StartDeadline)
	return &at
}

func startDeadlinePassed(c *hexactfv1.Challenge, cfg config.HexaCTF, now time.Time) bool {
	at := startDeadline(c, cfg, now)
	return at != nil && !now.Before(*at)
}

// startTimeout is how long a start takes at most of which nothing is told between its begin
// and its end: most are quicker, also where a hundred come at once, and each write less is one
// that others need not wait for.
const startTimeout = 10 * time.Second

// unremarkable is how much longer a challenge may be starting before its status says what it
// waits for, zero if there is something to tell now.
func unremarkable(before *hexactfv1.Challenge, out Outcome, now time.Time) time.Duration {
	s := out.Challenge.Status
	begun := before.Status.CurrentStatus.State == hexactfv1.StateCreating && s.CurrentStatus.State == hexactfv1.StateCreating
	if !begun || out.Problem != nil || slices.ContainsFunc(out.Pods, func(p corev1.Pod) bool { return trouble(&p) != "" }) {
		return 0
	}
	return max(buildingSince(before, now).Add(startTimeout).Sub(now), 0)
}

// wakeUp is after how long time alone will change something, zero when it never will. now is
// what the status was derived with.
func requeueAfter(out Outcome, cfg config.HexaCTF, now time.Time) time.Duration {
	c := out.Challenge
	if p := out.Problem; p != nil && p.Reason == hexactfv1.ReasonDefinitionNotFound {
		if since := missingSince(c); since != nil {
			return max(since.Add(cfg.DefinitionTimeout).Sub(now), 0)
		}
		return cfg.DefinitionTimeout
	}
	if at := startDeadline(c, cfg, now); at != nil && c.Status.CurrentStatus.State != hexactfv1.StateError {
		return max(at.Sub(now), 0)
	}
	return 0
}

// setConditions writes conditions.
func setConditions(c *hexactfv1.Challenge, now time.Time, wanted ...metav1.Condition) {
	conditions.Upsert(&c.Status.Conditions, c.Generation, now, wanted...)
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// on reports whether an outcome was stopped by a problem of a condition.
func (out Outcome) on(conditionType string) bool {
	return out.Problem != nil && out.Problem.Condition == conditionType
}

func definitionFound(out Outcome) metav1.Condition {
	const this = hexactfv1.ConditionDefinitionFound
	if out.on(this) {
		return condition(this, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message)
	}
	return condition(this, metav1.ConditionTrue, hexactfv1.ReasonDefinitionFound, "The challenge runs what its definition said at the start")
}

func resourcesCreated(out Outcome) metav1.Condition {
	const this = hexactfv1.ConditionResourcesCreated
	switch p := out.Problem; {
	case p == nil:
		return condition(this, metav1.ConditionTrue, hexactfv1.ReasonResourcesCreated, "All objects are in place")
	case !out.on(this):
		return condition(this, metav1.ConditionUnknown, hexactfv1.ReasonWaiting, "Waits for "+p.Condition)
	case p.Class == outcome.InProgress:
		return condition(this, metav1.ConditionUnknown, p.Reason, p.Message)
	default:
		return condition(this, metav1.ConditionFalse, p.Reason, p.Message)
	}
}

func availability(out Outcome, ready, late bool, missing string) metav1.Condition {
	const this = hexactfv1.ConditionAvailable
	switch {
	case ready:
		return condition(this, metav1.ConditionTrue, hexactfv1.ReasonAvailable, "All Deployments are available")
	case out.Problem != nil:
		return condition(this, metav1.ConditionUnknown, hexactfv1.ReasonWaiting, "Waits for "+out.Problem.Condition)
	case out.Challenge.Status.RunningAt != nil:
		return condition(this, metav1.ConditionFalse, hexactfv1.ReasonUnavailable, missing)
	case late:
		return condition(this, metav1.ConditionFalse, hexactfv1.ReasonStartDeadlineExceeded, lateMessage(missing))
	default:
		return condition(this, metav1.ConditionFalse, hexactfv1.ReasonStarting, missing)
	}
}

// notifying is about messages that are held up. One that is on its way is nothing to tell:
// each would cost a write of the status.
func notifying(d Delivery) metav1.Condition {
	const this = hexactfv1.ConditionNotifying
	switch {
	case d.Off:
		return condition(this, metav1.ConditionTrue, hexactfv1.ReasonNotifyOff, "No messages are sent: KAFKA_BROKERS is empty")
	case d.Problem != "":
		return condition(this, metav1.ConditionFalse, hexactfv1.ReasonNotifyFailed, "A message cannot be sent, which is tried again and again: "+d.Problem)
	default:
		return condition(this, metav1.ConditionTrue, hexactfv1.ReasonNotifying, "No message is held up")
	}
}

// checkAvailability reports whether the challenge can be reached: all Deployments are
// available, and the endpoint is known if there is one. missing says what is not yet.
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

// available reports whether a Deployment is, as its controller says of its present spec.
func available(d *appsv1.Deployment) bool {
	return d != nil && d.Status.ObservedGeneration >= d.Generation && conditionOf(d, appsv1.DeploymentAvailable).Status == corev1.ConditionTrue
}

func conditionOf(d *appsv1.Deployment, conditionType appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	at := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == conditionType })
	if at < 0 {
		return appsv1.DeploymentCondition{}
	}
	return d.Status.Conditions[at]
}

// replicaSetCreateError is the reason of a Deployment for which no ReplicaSet can be made.
const replicaSetCreateError = "ReplicaSetCreateError"

// whyNot says why a Deployment is not available, as far as is known: what its pods say, or why
// the API server refuses them.
func whyNot(component string, d *appsv1.Deployment, pods []corev1.Pod) string {
	if d == nil {
		return "its Deployment is not there yet"
	}
	for i := range pods {
		if pods[i].Labels[hexactfv1.LabelName] != component {
			continue
		}
		if why := trouble(&pods[i]); why != "" {
			return why
		}
	}
	if c := conditionOf(d, appsv1.DeploymentReplicaFailure); c.Status == corev1.ConditionTrue {
		return c.Message
	}
	if c := conditionOf(d, appsv1.DeploymentProgressing); c.Status == corev1.ConditionFalse && c.Reason == replicaSetCreateError {
		return c.Message
	}
	return "its pods are not ready yet"
}

// passing are the reasons for which a container waits that pass by themselves.
var passing = []string{"", "ContainerCreating", "PodInitializing"}

// trouble returns why a pod cannot come up, "" if nothing is known to keep it.
func trouble(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return ""
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && !slices.Contains(passing, w.Reason) {
			text := fmt.Sprintf("container %s: %s", s.Name, strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			if last := s.LastTerminationState.Terminated; last != nil {
				text += fmt.Sprintf("; it ended last with exit code %d (%s)", last.ExitCode, cmp.Or(last.Reason, "no reason"))
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

// computeInherited writes the status of a challenge that another operator has started.
func computeInherited(c *hexactfv1.Challenge, d Delivery, now time.Time) {
	identify(c, nil, now)
	s := &c.Status
	s.ObservedGeneration = c.Generation
	if s.RunningAt == nil {
		s.RunningAt = s.StartedAt.DeepCopy()
	}
	s.CurrentStatus.ErrorMsg = ""
	const unknown = "It was started by another operator, which did not note what it was made of: it runs on until its end and is not repaired"
	setConditions(c, now,
		condition(hexactfv1.ConditionDefinitionFound, metav1.ConditionTrue, hexactfv1.ReasonInherited, "It was started by another operator"),
		condition(hexactfv1.ConditionResourcesCreated, metav1.ConditionUnknown, hexactfv1.ReasonInherited, unknown),
		condition(hexactfv1.ConditionAvailable, metav1.ConditionUnknown, hexactfv1.ReasonInherited, unknown),
		notifying(d),
	)
	strike(s, d.Acknowledged)
}

// computeTerminating writes the status of a challenge that is being deleted. lost says how many
// messages nobody will be told any more.
func computeTerminating(c *hexactfv1.Challenge, d Delivery, now time.Time) {
	s := &c.Status
	was := s.CurrentStatus.State
	id := identityOf(c)
	s.ChallengeID, s.User = id.ChallengeID, id.User
	s.ObservedGeneration = c.Generation
	s.CurrentStatus.State = hexactfv1.StateTerminating
	const ending = "The Challenge is being deleted"
	wanted := []metav1.Condition{
		condition(hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonTerminating, ending),
		notifying(d),
	}
	// What was never looked at is not known.
	for _, step := range []string{hexactfv1.ConditionDefinitionFound, hexactfv1.ConditionResourcesCreated} {
		if !slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == step }) {
			wanted = append(wanted, condition(step, metav1.ConditionUnknown, hexactfv1.ReasonTerminating, ending))
		}
	}
	setConditions(c, now, wanted...)
	deliver(s, d, was, false, now)
}
