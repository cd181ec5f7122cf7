package challengeinstance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// Outcome is what one pass saw and did, and all that a status is derived from.
type Outcome struct {
	Observed Observed
	// Pinned is what the instance is built from; nil before it is started.
	Pinned *Snapshot
	// Problem is what stopped the pass; nil when every object is in place.
	Problem *Problem
	// Endpoints are complete when every Service is in place, else nil.
	Endpoints []Endpoint
}

// steps are the conditions of a build, in its order: a problem of one leaves
// the later ones open.
var steps = []string{
	bergv1.ConditionChallengeFound,
	bergv1.ConditionFlagValidation,
	bergv1.ConditionNamespaceCreated,
	bergv1.ConditionNetworkPolicyCreated,
	bergv1.ConditionServicesCreated,
	bergv1.ConditionRoutesCreated,
	bergv1.ConditionDeploymentsCreated,
}

// derive writes into the status of a live instance what an outcome means.
func derive(instance *bergv1.ChallengeInstance, out Outcome, cfg config.Challenge, now time.Time) {
	s := &instance.Status
	s.ObservedGeneration = instance.Generation
	pods := judgePods(out)

	if out.Endpoints != nil {
		s.Services = publicServices(out.Endpoints)
	}
	if s.ReadyAt == nil && out.Problem == nil && pods.ready {
		s.ReadyAt = &metav1.Time{Time: now}
	}
	s.Phase = phaseOf(instance, out, cfg, now)
	for _, c := range conditionsOf(instance, out, pods, cfg) {
		c.ObservedGeneration = instance.Generation
		c.LastTransitionTime = metav1.Time{Time: now}
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

func phaseOf(instance *bergv1.ChallengeInstance, out Outcome, cfg config.Challenge, now time.Time) bergv1.Phase {
	s := instance.Status
	if p := out.Problem; p != nil {
		switch {
		case p.Class == Blocked || p.Class == Foreign:
			return bergv1.PhaseFailed
		case s.ReadyAt != nil:
			return bergv1.PhaseRunning
		case s.InstanceID == "":
			return bergv1.PhasePending
		default:
			return bergv1.PhaseCreating
		}
	}
	switch {
	case s.ReadyAt != nil:
		return bergv1.PhaseRunning
	case startDeadline(instance, cfg) != nil && !now.Before(*startDeadline(instance, cfg)):
		return bergv1.PhaseFailed
	default:
		return bergv1.PhaseStarting
	}
}

// startDeadline is when an instance that is not ready counts as failed; nil for
// never.
func startDeadline(instance *bergv1.ChallengeInstance, cfg config.Challenge) *time.Time {
	if cfg.StartDeadline == 0 || instance.Status.StartedAt == nil || instance.Status.ReadyAt != nil {
		return nil
	}
	t := instance.Status.StartedAt.Add(cfg.StartDeadline)
	return &t
}

// conditionsOf returns every condition of a live instance, each pass anew. The
// phase must be derived already.
func conditionsOf(instance *bergv1.ChallengeInstance, out Outcome, pods podsVerdict, cfg config.Challenge) []metav1.Condition {
	conditions := make([]metav1.Condition, 0, len(steps)+4)
	add := func(conditionType string, status metav1.ConditionStatus, reason, message string) {
		conditions = append(conditions, metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message})
	}
	stopped := len(steps)
	if out.Problem != nil {
		stopped = slices.Index(steps, out.Problem.Condition)
	}
	for i, step := range steps {
		switch {
		case i < stopped:
			reason, message := doneStep(step, out)
			add(step, metav1.ConditionTrue, reason, message)
		case i == stopped:
			add(step, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message)
		case meta.FindStatusCondition(instance.Status.Conditions, step) == nil || instance.Status.InstanceID == "":
			add(step, metav1.ConditionUnknown, bergv1.ReasonWaiting, "Waits for "+out.Problem.Condition)
		}
	}
	conditions = withdrawn(conditions, instance, out)

	ready := instance.Status.ReadyAt != nil
	switch {
	case ready:
		add(bergv1.ConditionPodsReady, metav1.ConditionTrue, bergv1.ReasonReady, "All pods were ready")
	case out.Problem != nil:
		add(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonWaiting, "Waits for "+out.Problem.Condition)
	case instance.Status.Phase == bergv1.PhaseFailed:
		add(bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonStartDeadline,
			fmt.Sprintf("Not ready within %s of the start. %s", cfg.StartDeadline, pods.message))
	case pods.broken != "":
		add(bergv1.ConditionPodsReady, metav1.ConditionFalse, pods.broken, pods.message)
	default:
		add(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, pods.message)
	}
	switch {
	case !ready:
		add(bergv1.ConditionHealthy, metav1.ConditionUnknown, bergv1.ReasonStarting, "The instance has not been ready yet")
	case out.Problem != nil:
		add(bergv1.ConditionHealthy, metav1.ConditionUnknown, bergv1.ReasonWaiting, "Waits for "+out.Problem.Condition)
	case pods.ready:
		add(bergv1.ConditionHealthy, metav1.ConditionTrue, bergv1.ReasonReady, "All pods are ready")
	default:
		add(bergv1.ConditionHealthy, metav1.ConditionFalse, cmp.Or(pods.broken, bergv1.ReasonPodsNotReady), pods.message)
	}
	add(upToDate(out))
	add(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonLive, "The instance is not being deleted")
	return conditions
}

func doneStep(step string, out Outcome) (reason, message string) {
	switch step {
	case bergv1.ConditionChallengeFound:
		return bergv1.ReasonFound, "The Challenge exists and can be run"
	case bergv1.ConditionFlagValidation:
		if out.Pinned != nil && needsFlag(out.Pinned.Containers) {
			return bergv1.ReasonFlagProvided, "The Challenge asks for a flag and spec.flag is set"
		}
		return bergv1.ReasonFlagNotNeeded, "The Challenge does not ask for a dynamic flag"
	case bergv1.ConditionRoutesCreated:
		if out.Pinned != nil && !hasRoutes(out.Pinned.Containers) {
			return bergv1.ReasonNotNeeded, "No port of the Challenge is routed"
		}
	}
	return bergv1.ReasonCreated, "In place"
}

// withdrawn corrects ChallengeFound for an instance that outlives its Challenge:
// it needs the Challenge no more, but says that it is gone.
func withdrawn(conditions []metav1.Condition, instance *bergv1.ChallengeInstance, out Outcome) []metav1.Condition {
	if out.Pinned != nil && out.Observed.Challenge == nil {
		conditions[0].Status, conditions[0].Reason = metav1.ConditionFalse, bergv1.ReasonChallengeMissing
		conditions[0].Message = fmt.Sprintf("Challenge %s was deleted; the instance runs on with what it was started with", instance.Spec.ChallengeRef.Name)
	}
	return conditions
}

func upToDate(out Outcome) (conditionType string, status metav1.ConditionStatus, reason, message string) {
	switch {
	case out.Pinned == nil:
		return bergv1.ConditionUpToDate, metav1.ConditionUnknown, bergv1.ReasonWaiting, "The instance has not been started"
	case out.Observed.Challenge == nil:
		return bergv1.ConditionUpToDate, metav1.ConditionUnknown, bergv1.ReasonChallengeMissing, "The Challenge does not exist any more"
	case out.Pinned.equal(snapshotOf(out.Observed.Challenge)):
		return bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate, "The instance runs what the Challenge says"
	default:
		return bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged,
			"The Challenge was changed after the start: set a new value of the annotation " + bergv1.AnnotationRollout + " to adopt it; this restarts the pods"
	}
}

func hasRoutes(containers []bergv1.Container) bool {
	for _, c := range containers {
		for _, p := range c.Ports {
			if t := portType(p); t == bergv1.PublicHTTPRoute || t == bergv1.PublicTLSRoute {
				return true
			}
		}
	}
	return false
}

func publicServices(endpoints []Endpoint) []bergv1.ServiceEndpoint {
	var out []bergv1.ServiceEndpoint
	for _, e := range endpoints {
		if e.Service != nil {
			out = append(out, *e.Service)
		}
	}
	return out
}

// podsVerdict sums up the pods of an instance.
type podsVerdict struct {
	ready   bool
	broken  string // reason of the first container that cannot come up, "" if none
	message string
}

func judgePods(out Outcome) podsVerdict {
	if out.Pinned == nil {
		return podsVerdict{}
	}
	var missing []string
	for _, c := range out.Pinned.Containers {
		pods := podsOf(out.Observed.Pods, c.Hostname)
		for _, p := range pods {
			if reason, message := trouble(p); reason != "" {
				return podsVerdict{broken: reason, message: fmt.Sprintf("Container %s: %s", c.Hostname, message)}
			}
		}
		if len(pods) == 0 || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !podReady(p) }) {
			missing = append(missing, c.Hostname)
		}
	}
	if len(missing) > 0 {
		return podsVerdict{message: "Not ready: " + strings.Join(missing, ", ")}
	}
	return podsVerdict{ready: true}
}

// podsOf returns the pods of one container that are not on their way out.
func podsOf(pods []corev1.Pod, container string) []corev1.Pod {
	var out []corev1.Pod
	for _, p := range pods {
		if p.Labels[bergv1.LabelContainer] == container && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

func podReady(p corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// passing are the reasons for which a container waits that pass by themselves.
var passing = []string{"", "ContainerCreating", "PodInitializing"}

// trouble returns why a pod cannot come up: a waiting container's reason, or why
// it cannot be scheduled. The kubelet's messages name images and exit codes, not
// environments.
func trouble(p corev1.Pod) (reason, message string) {
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && !slices.Contains(passing, w.Reason) {
			return w.Reason, strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason, c.Reason + ": " + c.Message
		}
	}
	return "", ""
}
