package challengeinstance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Outcome is what one pass saw and did, and all that a status is derived from.
type Outcome struct {
	Observed
	// Problem is what stopped the pass; nil when every object is in place.
	Problem *outcome.Problem
	// Endpoints are those of every port when all Services are in place: empty when
	// there are no ports, nil while they are not known.
	Endpoints []Endpoint
	// Written is when the pass had written objects.
	Written Written
}

// steps are the conditions of a build, in its order: a problem of one leaves
// the later ones open.
var steps = []string{
	bergv1.ConditionChallengeFound,
	bergv1.ConditionFlagValidation,
	bergv1.ConditionAdmitted,
	bergv1.ConditionNamespaceCreated,
	bergv1.ConditionNetworkPolicyCreated,
	bergv1.ConditionServicesCreated,
	bergv1.ConditionRoutesCreated,
	bergv1.ConditionDeploymentsCreated,
}

// computeStatus writes into the status of a live instance what an outcome means.
func computeStatus(out Outcome, cfg config.Challenge, now time.Time) {
	s := &out.Instance.Status
	before := s.DeepCopy()
	pods := checkPods(out.Observed)

	s.ObservedGeneration = out.Instance.Generation
	s.ExpiresAt = expiresAt(out.Instance, cfg)
	if out.Endpoints != nil {
		s.Services = publicServices(out.Endpoints)
	}
	if s.ReadyAt == nil && out.Problem == nil && pods.ready {
		s.ReadyAt = &metav1.Time{Time: now}
		if s.ReadyAt.Before(s.StartedAt) {
			s.ReadyAt = s.StartedAt.DeepCopy() // the clock was put back since
		}
	}
	late := startDeadlinePassed(out.Instance, cfg, now)
	s.Phase = phaseOf(out, late)
	s.Cause = causeOf(out, s.Phase, pods)
	setConditions(out.Instance, now, append(buildConditions(out),
		podsReady(out, pods, late, cfg),
		healthy(out, pods),
		upToDate(out.Candidate, cfg),
		alive(out.Instance),
	)...)
	// That a pod was scheduled is worth no write of its own: it travels with the next one.
	if before.ReadyAt == nil && !equality.Semantic.DeepEqual(before, s) {
		s.Start = startTimes(out, now)
	}
}

// phaseOf returns the phase of a live instance. late says that its start deadline
// has passed.
func phaseOf(out Outcome, late bool) bergv1.Phase {
	p, s := out.Problem, out.Instance.Status
	switch {
	case p != nil && (p.Class == outcome.Blocked || p.Class == outcome.External), late:
		return bergv1.PhaseFailed
	case p != nil && (p.Reason == bergv1.ReasonOwnerBusy || s.InstanceID == ""):
		return bergv1.PhasePending
	case p != nil && p.Class == outcome.Retry && s.ReadyAt != nil:
		return bergv1.PhaseRunning // it is being repaired, which its pods need not notice
	case p != nil:
		return bergv1.PhaseCreating
	case s.ReadyAt == nil:
		return bergv1.PhaseStarting
	default:
		return bergv1.PhaseRunning
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

func startDeadlinePassed(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) bool {
	at := startDeadline(instance, cfg)
	return at != nil && !now.Before(*at)
}

// untilStartDeadline is how long it is until the start deadline changes the
// status: at least an instant when it passed after the status was derived, zero
// when it never will.
func untilStartDeadline(instance *bergv1.ChallengeInstance, cfg config.Challenge, now time.Time) time.Duration {
	at := startDeadline(instance, cfg)
	if at == nil || instance.Status.Phase == bergv1.PhaseFailed {
		return 0
	}
	return max(at.Sub(now), 1)
}

// setConditions writes conditions without the flag: it is taken out of them before they are
// cut to their length, since half of it would not be found.
func setConditions(instance *bergv1.ChallengeInstance, now time.Time, wanted ...metav1.Condition) {
	redactConditions(wanted, instance.Spec.Flag)
	conditions.Upsert(&instance.Status.Conditions, instance.Generation, now, wanted...)
}

func condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// buildConditions are those of the steps.
func buildConditions(out Outcome) []metav1.Condition {
	all := make([]metav1.Condition, 0, len(steps)+4)
	stopped := len(steps)
	if out.Problem != nil {
		stopped = slices.Index(steps, out.Problem.Condition)
	}
	for i, step := range steps {
		switch {
		case step == bergv1.ConditionAdmitted && i != stopped:
			all = append(all, admission(out)...)
		case i > stopped:
			all = append(all, condition(step, metav1.ConditionUnknown, bergv1.ReasonWaiting, waitsFor(out.Problem)))
		case i == stopped && out.Problem.Class == outcome.InProgress:
			all = append(all, condition(step, metav1.ConditionUnknown, out.Problem.Reason, out.Problem.Message))
		case i == stopped:
			all = append(all, condition(step, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message))
		case step == bergv1.ConditionChallengeFound && withdrawn(out.Candidate):
			all = append(all, condition(step, metav1.ConditionFalse, bergv1.ReasonChallengeMissing,
				fmt.Sprintf("Challenge %s was deleted; the instance runs on with what it was started with", out.Key)))
		default:
			reason, message := doneStep(step, out)
			all = append(all, condition(step, metav1.ConditionTrue, reason, message))
		}
	}
	return all
}

func waitsFor(p *outcome.Problem) string { return "Waits for " + p.Condition }

// withdrawn reports whether an instance outlives its Challenge: it does not need
// the Challenge any more, but says that it is gone.
func withdrawn(c Candidate) bool { return c.Pinned != nil && c.Challenge == nil }

func doneStep(step string, out Outcome) (reason, message string) {
	pinned := out.Pinned
	switch step {
	case bergv1.ConditionChallengeFound:
		return bergv1.ReasonFound, "The Challenge exists and can be run"
	case bergv1.ConditionFlagValidation:
		if pinned != nil && needsFlag(pinned.Containers) {
			return bergv1.ReasonFlagProvided, "The Challenge asks for a flag and spec.flag is set"
		}
		return bergv1.ReasonFlagNotNeeded, "The Challenge does not ask for a dynamic flag"
	case bergv1.ConditionNetworkPolicyCreated:
		return bergv1.ReasonCreated, "In place: " + policyKinds(out.Policies)
	case bergv1.ConditionRoutesCreated:
		if pinned != nil && !hasRoutes(pinned.Containers) {
			return bergv1.ReasonNotNeeded, "No port of the Challenge is routed"
		}
	}
	return bergv1.ReasonCreated, "In place"
}

func policyKinds(p config.NetworkPolicy) string {
	switch p {
	case config.NetworkPolicyCilium:
		return ciliumv2.CNPKindDefinition
	case config.NetworkPolicyKubernetes:
		return "NetworkPolicy"
	default:
		return "NetworkPolicy and " + ciliumv2.CNPKindDefinition
	}
}

// podsReady says whether all pods were ready once.
func podsReady(out Outcome, pods podsVerdict, late bool, cfg config.Challenge) metav1.Condition {
	status, reason, message := metav1.ConditionUnknown, bergv1.ReasonStarting, pods.message
	switch {
	case out.Instance.Status.ReadyAt != nil:
		status, reason, message = metav1.ConditionTrue, bergv1.ReasonReady, "All pods were ready"
	case late:
		if out.Problem != nil {
			message = waitsFor(out.Problem)
		}
		status, reason = metav1.ConditionFalse, bergv1.ReasonStartDeadline
		message = fmt.Sprintf("Not ready within %s of the start. %s", cfg.StartDeadline, message)
	case out.Problem != nil:
		reason, message = bergv1.ReasonWaiting, waitsFor(out.Problem)
	case pods.broken != "":
		status, reason = metav1.ConditionFalse, pods.broken
	}
	return condition(bergv1.ConditionPodsReady, status, reason, message)
}

// healthy says whether all pods of an instance that was ready are ready now.
func healthy(out Outcome, pods podsVerdict) metav1.Condition {
	status, reason, message := metav1.ConditionFalse, cmp.Or(pods.broken, bergv1.ReasonPodsNotReady), pods.message
	switch {
	case out.Instance.Status.ReadyAt == nil:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonStarting, "The instance has not been ready yet"
	case out.Problem != nil && out.Problem.Class != outcome.Retry:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonWaiting, waitsFor(out.Problem)
	case pods.ready:
		status, reason, message = metav1.ConditionTrue, bergv1.ReasonReady, "All pods are ready"
	}
	return condition(bergv1.ConditionHealthy, status, reason, message)
}

// upToDate compares what the instance runs with what the Challenge and the
// configuration say today.
func upToDate(c Candidate, cfg config.Challenge) metav1.Condition {
	status, reason, message := metav1.ConditionFalse, bergv1.ReasonChallengeChanged,
		"The Challenge was changed after the start: set a new value of the annotation "+bergv1.AnnotationRollout+" to adopt it; pods that it changes restart"
	switch {
	case c.Pinned == nil:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonWaiting, "The instance has not been started"
	case c.Challenge == nil:
		status, reason, message = metav1.ConditionUnknown, bergv1.ReasonChallengeMissing, "The Challenge does not exist any more"
	case c.Pinned.runs(c.Challenge) && c.Pinned.Defaults.current(cfg, c.Instance):
		status, reason, message = metav1.ConditionTrue, bergv1.ReasonUpToDate, "The instance runs what the Challenge says"
	case c.Pinned.runs(c.Challenge):
		reason, message = bergv1.ReasonConfigurationChanged,
			"The operator's configuration was changed after the start: set a new value of the annotation "+bergv1.AnnotationRollout+" to adopt it; pods that it changes restart"
	default:
		if p := checkAdoption(c, cfg); p != nil {
			reason, message = p.Reason, "The Challenge was changed after the start and cannot be adopted: "+p.Message
		}
	}
	return condition(bergv1.ConditionUpToDate, status, reason, message)
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

func checkPods(o Observed) podsVerdict {
	if o.Pinned == nil {
		return podsVerdict{}
	}
	var missing, probed []string
	for _, c := range o.Pinned.Containers {
		ready, problem, message := checkContainer(o, c)
		if problem != "" {
			return podsVerdict{broken: problem, message: fmt.Sprintf("Container %s: %s", c.Hostname, message)}
		}
		if !ready {
			missing = append(missing, c.Hostname)
			if c.ReadinessProbe != nil {
				probed = append(probed, c.Hostname)
			}
		}
	}
	if len(missing) > 0 {
		return podsVerdict{message: "Not ready: " + strings.Join(missing, ", ") + probesOf(probed, o.Instance.Status.ReadyAt != nil)}
	}
	return podsVerdict{ready: true}
}

// probesOf tells which readiness probes have to succeed yet. It says so from the beginning: that a
// container runs meanwhile would be a write more for every start.
func probesOf(containers []string, again bool) string {
	if len(containers) == 0 {
		return ""
	}
	probes, have, do := "probe", "has not succeeded yet", "does not succeed"
	if len(containers) > 1 {
		probes, have, do = "probes", "have not succeeded yet", "do not succeed"
	}
	if again {
		have = do
	}
	return fmt.Sprintf("; the readiness %s of %s %s", probes, strings.Join(containers, ", "), have)
}

// checkContainer says whether a container is ready, else which problem keeps it from
// that, as far as is known: what its pods say, what the runtime says of them, why there
// are none, and last how the pod ended that nothing has replaced.
func checkContainer(o Observed, c bergv1.Container) (ready bool, reason, message string) {
	live, ended := podsOf(o.Pods, c.Hostname)
	for _, p := range live {
		if v := viewOf(p); v.reason != "" {
			return false, v.reason, v.message + killerOf(p, c)
		}
	}
	if len(live) > 0 && !slices.ContainsFunc(live, func(p *corev1.Pod) bool { return !podReady(p) }) {
		return true, "", ""
	}
	for _, p := range live {
		if why := o.Sandboxes[p.UID]; why != "" && !podReady(p) && !sandboxMade(p) {
			return false, sandboxFailed, sandboxFailed + ": " + why
		}
	}
	if refusal := refusalOf(o.Deployments[c.Hostname]); refusal != nil {
		return false, bergv1.ReasonRefused, refusal.Message
	}
	if len(live) == 0 && len(ended) > 0 {
		v := viewOf(ended[0])
		return false, v.reason, v.message
	}
	return false, "", ""
}

// podView is all of a pod that the status of an instance is made of.
type podView struct {
	container      string
	leaving, ready bool
	// reason is why the pod cannot come up, or how it ended, "" if nothing keeps it;
	// message says more.
	reason, message string
}

func viewOf(p *corev1.Pod) podView {
	v := podView{container: p.Labels[bergv1.LabelContainer], leaving: p.DeletionTimestamp != nil, ready: podReady(p)}
	v.reason, v.message = podProblem(p)
	return v
}

// podsOf returns the pods of one container that are not being deleted, the newest first:
// those that live, and those that have ended. One that was evicted, or had no room on its
// node, stays beside the one that replaces it.
func podsOf(pods []corev1.Pod, container string) (live, ended []*corev1.Pod) {
	for i := range pods {
		switch p := &pods[i]; {
		case p.Labels[bergv1.LabelContainer] != container || p.DeletionTimestamp != nil:
		case podEnded(p):
			ended = append(ended, p)
		default:
			live = append(live, p)
		}
	}
	slices.SortFunc(live, newestFirst)
	slices.SortFunc(ended, newestFirst)
	return live, ended
}

// newestFirst is an order that is the same each time, which that of a cache is not.
func newestFirst(a, b *corev1.Pod) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

func podEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func podReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// passing are the reasons for which a container waits that pass by themselves.
var passing = []string{"", "ContainerCreating", "PodInitializing"}

// podProblem returns how a pod ended, or why it cannot come up: a waiting container's
// reason, or why it cannot be scheduled. The kubelet's messages name images and exit
// codes, not environments. Containers that admission has added come first, as they start
// first.
func podProblem(p *corev1.Pod) (reason, message string) {
	if podEnded(p) {
		said := cmp.Or(p.Status.Reason, string(p.Status.Phase))
		return reasonOf(said, string(p.Status.Phase)), strings.TrimSuffix(said+": "+p.Status.Message, ": ")
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if last := crashed(s); last != nil {
			// How long it waits for the next attempt is left out: that changes with each.
			return crashLoopBackOff, crashLoopBackOff + ": " + lastWords(last)
		}
		if w := s.State.Waiting; w != nil && !slices.Contains(passing, w.Reason) {
			message := strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
			if last := s.LastTerminationState.Terminated; last != nil {
				message += "; " + lastWords(last)
			}
			return reasonOf(w.Reason, bergv1.ReasonPodsNotReady), message
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason, c.Reason + ": " + c.Message
		}
	}
	return "", ""
}

// lastWords tells how a container ended: by the runtime's text if that could not start it.
func lastWords(t *corev1.ContainerStateTerminated) string {
	if neverRan(t) {
		return t.Reason + ": " + t.Message
	}
	return fmt.Sprintf("it ended last with exit code %d (%s)", t.ExitCode, cmp.Or(t.Reason, "no reason"))
}

// killerOf tells what may have ended a container by a signal: a kubelet does not say of which end it was
// the liveness probe.
func killerOf(p *corev1.Pod, c bergv1.Container) string {
	at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Hostname })
	if at < 0 || c.LivenessProbe == nil {
		return ""
	}
	s := p.Status.ContainerStatuses[at]
	last := crashed(s)
	if last == nil && s.State.Waiting != nil && !slices.Contains(passing, s.State.Waiting.Reason) {
		last = s.LastTerminationState.Terminated
	}
	if last == nil || last.Reason != "Error" || last.ExitCode != exitKilled && last.ExitCode != exitAsked {
		return ""
	}
	return "; its liveness probe may have ended it"
}

// How a container ends that is killed, or asked to end.
const exitKilled, exitAsked = 128 + 9, 128 + 15

// neverRan reports whether the runtime could not start a container. Only then is the
// message the runtime's. Else it is what the container has written, which may contain the
// flag in any notation.
func neverRan(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "StartError" || t.Reason == "ContainerCannotRun"
}

// TrimContainer keeps of a container's status why it waits, when it was started, and how it
// ended before that, but not what it wrote in the end.
func TrimContainer(s corev1.ContainerStatus) corev1.ContainerStatus {
	kept := corev1.ContainerStatus{
		Name: s.Name, Ready: s.Ready, RestartCount: s.RestartCount,
		State:                corev1.ContainerState{Waiting: s.State.Waiting, Terminated: trimEnd(s.State.Terminated)},
		LastTerminationState: corev1.ContainerState{Terminated: trimEnd(s.LastTerminationState.Terminated)},
	}
	if r := s.State.Running; r != nil {
		kept.State.Running = &corev1.ContainerStateRunning{StartedAt: r.StartedAt}
	}
	return kept
}

func trimEnd(t *corev1.ContainerStateTerminated) *corev1.ContainerStateTerminated {
	if t == nil {
		return nil
	}
	kept := &corev1.ContainerStateTerminated{Reason: t.Reason, ExitCode: t.ExitCode, StartedAt: attempted(t)}
	if neverRan(t) {
		kept.Message = sandboxID.ReplaceAllString(t.Message, "...")
	}
	return kept
}
