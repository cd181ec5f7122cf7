package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
)

// podsSummary summarises the pods of an instance.
type podsSummary struct {
	ready   bool
	broken  string // reason of the first container that cannot start, "" if none
	message string
}

// checkPods summarises the pods of an instance. The first container that cannot start decides; otherwise the message names
// all containers that are not ready, with their probes and ports.
func checkPods(o Observed, now time.Time) podsSummary {
	if o.Pinned == nil {
		return podsSummary{}
	}
	var missing, probed, closed []string
	for _, c := range o.Pinned.Containers {
		ready, problem, message := checkContainer(o, c, now)
		if problem != "" {
			return podsSummary{broken: problem, message: fmt.Sprintf("Container %s: %s", c.Hostname, message)}
		}
		if !ready {
			missing = append(missing, c.Hostname)
			if c.ReadinessProbe != nil {
				probed = append(probed, c.Hostname)
			}
			if port := manifests.StartupPort(c); port != 0 {
				closed = append(closed, fmt.Sprintf("port %d of %s", port, c.Hostname))
			}
		}
	}
	if len(missing) > 0 {
		repeated := o.Instance.Status.ReadyAt != nil
		return podsSummary{message: "Not ready: " + strings.Join(missing, ", ") + describeProbes(probed, repeated) + describePorts(closed, repeated)}
	}
	return podsSummary{ready: true}
}

// describeProbes names the readiness probes that have not succeeded. The text does not depend on
// whether the container runs already, which would cost every start one more write.
func describeProbes(containers []string, repeated bool) string {
	if len(containers) == 0 {
		return ""
	}
	probes, have, do := "probe", "has not succeeded yet", "does not succeed"
	if len(containers) > 1 {
		probes, have, do = "probes", "have not succeeded yet", "do not succeed"
	}
	if repeated {
		have = do
	}
	return fmt.Sprintf("; the readiness %s of %s %s", probes, strings.Join(containers, ", "), have)
}

// describePorts names the ports that must accept a connection, as describeProbes does for probes.
func describePorts(ports []string, repeated bool) string {
	if len(ports) == 0 {
		return ""
	}
	verb, yet := "accepts", " yet"
	if len(ports) > 1 {
		verb = "accept"
	}
	if repeated {
		yet = ""
	}
	return fmt.Sprintf("; %s %s no connection%s", strings.Join(ports, ", "), verb, yet)
}

// checkContainer reports whether a container is ready, else the reason if one is known. It checks its pods, then failures
// of the runtime, then failures to create pods, and last the end of a pod that was not replaced. An unknown reason is empty: the
// container just takes its time.
func checkContainer(o Observed, c bergv1.Container, now time.Time) (ready bool, reason, message string) {
	live, ended := ContainerPods(o.Pods, c.Hostname)
	if awaitsFlag(o, c, live, now) {
		return o.Prepared, "", ""
	}
	for _, p := range live {
		if v := NewPodView(p); v.reason != "" {
			return false, v.reason, v.message + livenessHint(p, c)
		}
		if last, until := unsettled(p); now.Before(until) {
			return false, crashLoopBackOff, crashMessage(last) + livenessHint(p, c)
		}
	}
	if len(live) > 0 && !slices.ContainsFunc(live, func(p *corev1.Pod) bool { return !PodReady(p) && !opened(o, c, p) }) {
		return true, "", ""
	}
	for _, p := range live {
		if reason := o.Sandboxes[p.UID]; reason != "" && !PodReady(p) && !SandboxMade(p) {
			return false, sandboxFailed, sandboxFailed + ": " + reason
		}
	}
	if reason, message := ExplainRefusal(o.Deployments[c.Hostname], now); reason != "" {
		return false, reason, message
	}
	if len(live) == 0 && len(ended) > 0 {
		v := NewPodView(ended[0])
		return false, v.reason, v.message
	}
	return false, "", ""
}

const (
	// flagInterval is how often the operator has the kubelet look for a flag that it has written. The kubelet itself looks after
	// more than ten seconds.
	flagInterval = 250 * time.Millisecond
	// flagTimeout is how long a container may need to find its flag. After that its reason counts as for any other container.
	flagTimeout = 15 * time.Second
	// createContainerConfigError is the kubelet's reason for a container that refers to a missing key or file.
	createContainerConfigError = "CreateContainerConfigError"
)

// awaitsFlag reports whether a container has its sandbox and its image, and waits for nothing but the flag.
func awaitsFlag(o Observed, c bergv1.Container, live []*corev1.Pod, now time.Time) bool {
	return len(live) > 0 && manifests.WaitsForFlag(c) && (o.Prepared || flagIsNew(o, now)) &&
		!slices.ContainsFunc(live, func(p *corev1.Pod) bool { return !podAwaitsFlag(p) })
}

// flagIsNew reports whether an instance has taken over a prepared one a moment ago.
func flagIsNew(o Observed, now time.Time) bool {
	s := o.Instance.Status
	return s.PreparedFrom != "" && s.StartedAt != nil && now.Sub(s.StartedAt.Time) < flagTimeout
}

func podAwaitsFlag(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && s.State.Waiting.Reason == createContainerConfigError
	})
}

// PodView is the part of a pod that the status of an instance depends on.
type PodView struct {
	container      string
	leaving, ready bool
	// begins: its containers run for the first time, and may accept connections before it is ready.
	begins bool
	// reason is the reason for which the pod cannot start, or has ended, "" if there is none; message has details.
	reason, message string
	// images are the digests of its images, as far as they are compared.
	images string
}

// NewPodView returns the view of a pod. Pods with equal views result in the same status, so an event that changes no view
// needs no reconciliation. A field that Compute newly reads of a pod must be in it, or a change of it is missed.
func NewPodView(p *corev1.Pod) PodView {
	v := PodView{container: p.Labels[bergv1.LabelContainer], leaving: p.DeletionTimestamp != nil, ready: PodReady(p), begins: Begins(p)}
	v.reason, v.message = podProblem(p)
	for _, s := range p.Status.ContainerStatuses {
		v.images += s.ImageID
	}
	return v
}

// ContainerPods returns the pods of one container that are not being deleted, the newest first: live pods and ended pods.
// An evicted pod, or a pod that its node rejected, remains in addition to its replacement.
func ContainerPods(pods []corev1.Pod, container string) (live, ended []*corev1.Pod) {
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

// newestFirst is a stable order. A cache lists pods in no order, and another first pod would change the message.
func newestFirst(a, b *corev1.Pod) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

func podEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// PodReady reports whether a pod runs and passes its readiness probes.
func PodReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && podstate.Ready(p)
}

// podProblem returns how a pod ended, or why it cannot start: the reason of a waiting container, or why it cannot be
// scheduled. The messages of the kubelet contain images and exit codes, but no environment. Containers that admission
// webhooks added come first, because they start first.
func podProblem(p *corev1.Pod) (reason, message string) {
	if podEnded(p) {
		said := cmp.Or(p.Status.Reason, string(p.Status.Phase))
		return validReason(said, string(p.Status.Phase)), strings.TrimSuffix(said+": "+p.Status.Message, ": ")
	}
	for _, s := range slices.Concat(TrimInitContainers(p.Status.InitContainerStatuses), p.Status.ContainerStatuses) {
		if last := crashed(p, s); last != nil {
			return crashLoopBackOff, addedTo(p, s) + crashMessage(last)
		}
		if w := podstate.Stuck(s); w != nil {
			message := addedTo(p, s) + strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
			if last := s.LastTerminationState.Terminated; last != nil {
				message += "; " + howItEnded(last)
			}
			return validReason(w.Reason, bergv1.ReasonPodsNotReady), message
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason, c.Reason + ": " + c.Message
		}
	}
	return "", ""
}

// addedTo names a container that an admission webhook added, "" for the container of the Challenge.
func addedTo(p *corev1.Pod, s corev1.ContainerStatus) string {
	if s.Name == "" || s.Name == p.Labels[bergv1.LabelContainer] {
		return ""
	}
	return s.Name + ", which admission added to the pod: "
}

// crashLoopBackOff is the reason of the kubelet while an ended container waits for its next
// attempt.
const crashLoopBackOff = "CrashLoopBackOff"

// crashed returns how a container last ended: while it waits, and also during the following attempt until that is ready.
// Otherwise the status would change twice with every attempt, and a reader between two changes would not find the crash. A
// container that was ready since then has another problem.
func crashed(p *corev1.Pod, s corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case s.State.Waiting != nil && s.State.Waiting.Reason == crashLoopBackOff:
		return s.LastTerminationState.Terminated
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Running == nil || s.Ready || s.RestartCount == 0 || wasReadySince(p, s.State.Running.StartedAt.Time):
		return nil
	case lost(s.LastTerminationState.Terminated):
		return nil
	default:
		return s.LastTerminationState.Terminated
	}
}

// wasReadySince reports whether a pod that is not ready was ready after one of its containers had started. A pod loses its
// readiness when a container ends, before the next attempt, and times in a status are whole seconds: only a later loss
// counts.
func wasReadySince(p *corev1.Pod, moment time.Time) bool {
	return !moment.IsZero() && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse && c.LastTransitionTime.After(moment.Add(settleTime))
	})
}

// lost reports whether a container did not end by itself: its node was restarted, or cannot say how it ended.
func lost(t *corev1.ContainerStateTerminated) bool {
	return t != nil && (t.Reason == "Unknown" || t.Reason == "ContainerStatusUnknown")
}

const (
	// settleTime is the time during which a container that crash-loops must be ready before it counts as ready. Without a
	// probe it is ready as soon as it runs, and the status would change twice with every attempt.
	settleTime = 10 * time.Second
	// loopBegins is the number of restarts from which settleTime applies. Many programs end once, because their database
	// does not answer yet, and the kubelet restarts them immediately the first time.
	loopBegins = 2
)

// unsettled returns the last end of a container that has ended several times and is ready again, and the time at which it
// counts as ready; nil and zero if there is none.
func unsettled(p *corev1.Pod) (last *corev1.ContainerStateTerminated, until time.Time) {
	for _, s := range p.Status.ContainerStatuses {
		if s.Ready && s.RestartCount >= loopBegins && s.State.Running != nil && s.LastTerminationState.Terminated != nil {
			if settled := s.State.Running.StartedAt.Add(settleTime); settled.After(until) {
				last, until = s.LastTerminationState.Terminated, settled
			}
		}
	}
	return last, until
}

// UntilSettled is the time until a container that has ended several times counts as ready, zero for never.
func UntilSettled(o Observed, now time.Time) time.Duration {
	var wait time.Duration
	for i := range o.Pods {
		if _, until := unsettled(&o.Pods[i]); now.Before(until) && o.Pods[i].DeletionTimestamp == nil {
			wait = Sooner(wait, until.Sub(now))
		}
	}
	return wait
}

// crashMessage leaves out the time until the next attempt, since it changes with each attempt.
func crashMessage(last *corev1.ContainerStateTerminated) string {
	return crashLoopBackOff + ": " + howItEnded(last)
}

// howItEnded describes how a container ended, in the words of the runtime if it could not
// start it.
func howItEnded(t *corev1.ContainerStateTerminated) string {
	if neverRan(t) {
		return t.Reason + ": " + t.Message
	}
	if lost(t) {
		return "its node was restarted, or does not know how it ended"
	}
	if t.ExitCode == 0 {
		return "its program ended by itself, with exit code 0"
	}
	return fmt.Sprintf("last exit code %d (%s)", t.ExitCode, cmp.Or(t.Reason, "no reason"))
}

// livenessHint says that the liveness probe may have stopped a container that a signal ended.
// The kubelet does not record which end the probe caused.
func livenessHint(p *corev1.Pod, c bergv1.Container) string {
	index := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Hostname })
	if index < 0 || c.LivenessProbe == nil {
		return ""
	}
	s := p.Status.ContainerStatuses[index]
	last := crashed(p, s)
	if last == nil && s.Ready {
		last = s.LastTerminationState.Terminated
	}
	if last == nil && podstate.Stuck(s) != nil {
		last = s.LastTerminationState.Terminated
	}
	if last == nil || last.Reason != "Error" || last.ExitCode != exitKilled && last.ExitCode != exitAsked {
		return ""
	}
	return "; its liveness probe may have stopped it"
}

// The exit codes of a container that SIGKILL or SIGTERM ended.
const exitKilled, exitAsked = 128 + 9, 128 + 15

// neverRan reports whether the runtime could not start a container. Only then is the message
// written by the runtime. Otherwise it is output of the container, which may contain the flag
// in any notation.
func neverRan(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "StartError" || t.Reason == "ContainerCannotRun"
}

// validReason converts a foreign text into a valid reason, for example OutOfnvidia.com/gpu. The API server would reject the
// whole status because of an invalid one.
func validReason(text, otherwise string) string {
	reason := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, text)
	if reason == "" || len(reason) > maxReason || reason[0] < 'A' || reason[0] > 'Z' {
		return otherwise
	}
	return reason
}

// maxReason is the maximum length of a reason, in bytes.
const maxReason = 64
