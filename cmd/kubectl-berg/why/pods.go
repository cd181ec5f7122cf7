package why

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

const (
	// slowStart is the time after which a start is no longer usual.
	slowStart = 2 * time.Minute
	// recentExit is how long ago a container may have exited to be reported of a healthy instance.
	recentExit = 10 * time.Minute
)

// pods explains why pods are not ready: the reason is that of the condition, the details come from
// the pods.
func (v View) pods(f *Finding, c *metav1.Condition, reason string, level Level) bool {
	f.addCondition(c)
	i := v.Instance
	name := containerOf(c.Message)
	subject := "A container"
	if name != "" {
		subject = "Container " + name
	}
	switch reason {
	case bergv1.ReasonStartDeadline:
		return v.startDeadline(f, c, name)
	case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
		text, do := pullFailure(v.newestEvent(f, "Failed", "pull") + " " + c.Message)
		return f.set(Problem, fmt.Sprintf("%s does not start: its image%s cannot be pulled%s.", subject, v.imageOf(name), text), do)
	case "CrashLoopBackOff", "RunContainerError", "StartError", "ContainerCannotRun", "CreateContainerError", "CreateContainerConfigError":
		return v.crashed(f, subject, name, reason)
	case "Unschedulable":
		return f.set(Problem, fmt.Sprintf("%s does not start: no node has enough free resources.", subject),
			"Add nodes, end instances, or lower resourceRequests in the Challenge. The message is the scheduler's. kubectl berg plan calculates what an event needs.")
	case bergv1.ReasonRefused:
		return f.set(Problem, fmt.Sprintf("%s does not start: the API server refuses its pod.", subject),
			"Change what the message names: a RuntimeClass, a quota, a LimitRange or an admission policy. Kubernetes retries within a minute.")
	case "FailedCreatePodSandBox":
		return f.set(Problem, fmt.Sprintf("%s does not start: its node cannot create the pod sandbox.", subject),
			"The message names the fault of the node's container runtime or network plugin. The node retries.")
	case "Evicted":
		return f.set(Problem, fmt.Sprintf("%s was evicted: its node ran out of memory or disk, or the container exceeded CHALLENGE_EPHEMERAL_STORAGE_LIMIT.", subject),
			"If this continues, raise resourceRequests.memory in the Challenge, or add nodes.")
	case bergv1.ReasonWaiting:
		return f.set(level, "The pods wait for an earlier step.", "Wait: the operator continues by itself.")
	case bergv1.ReasonPodsNotReady, bergv1.ReasonStarting:
		return v.notReady(f, level)
	default:
		return f.set(Problem, fmt.Sprintf("%s does not start: %s.", subject, reason), logsCommand(i, name))
	}
}

// startDeadline explains what kept the pods from becoming ready in time.
func (v View) startDeadline(f *Finding, c *metav1.Condition, name string) bool {
	const sentence = "The instance was not ready within the operator's setting CHALLENGE_START_DEADLINE"
	inner := *c
	if inner.Reason = reasonBehindDeadline(v, c.Message); inner.Reason == "" {
		return f.set(Problem, sentence+".", logsCommand(v.Instance, name))
	}
	g := Finding{}
	v.pods(&g, &inner, inner.Reason, Problem)
	f.Evidence = append(f.Evidence, g.Evidence[min(1, len(g.Evidence)):]...)
	return f.set(Problem, sentence+". "+g.Sentence, g.Do)
}

// containerPattern finds the container in a message of the operator.
var containerPattern = regexp.MustCompile(`(?:^|\. )Container ([a-z][-a-z0-9]*):|Not ready: ([a-z][-a-z0-9]*)`)

func containerOf(message string) string {
	m := containerPattern.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	return cmp.Or(m[1], m[2])
}

// reasonBehindDeadline is the reason for an exceeded deadline, "" if it is not known.
func reasonBehindDeadline(v View, message string) string {
	for _, p := range currentPods(v) {
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating" {
				return s.State.Waiting.Reason
			}
		}
		for _, pc := range p.Status.Conditions {
			if pc.Type == corev1.PodScheduled && pc.Status == corev1.ConditionFalse {
				return pc.Reason
			}
		}
	}
	for _, reason := range []string{"ImagePullBackOff", "ErrImagePull", "CrashLoopBackOff", "Unschedulable"} {
		if strings.Contains(message, reason) {
			return reason
		}
	}
	return ""
}

func logsCommand(i *bergv1.ChallengeInstance, container string) string {
	command := fmt.Sprintf("Read the logs: kubectl berg logs %s -n %s", i.Name, i.Namespace)
	if container != "" {
		command += " -c " + container
	}
	return command
}

// imageOf is the image of a container, with a space before it.
func (v View) imageOf(container string) string {
	for _, p := range currentPods(v) {
		for _, c := range p.Spec.Containers {
			if c.Name == container {
				return " " + c.Image
			}
		}
	}
	return ""
}

// recentlyRestarted checks for a container that has just exited, although it runs now.
func recentlyRestarted(v View, f *Finding) bool {
	for _, p := range currentPods(v) {
		for _, s := range p.Status.ContainerStatuses {
			last := s.LastTerminationState.Terminated
			if last == nil || v.Now.Sub(last.FinishedAt.Time) > recentExit {
				continue
			}
			f.Reason = last.Reason
			return f.set(Problem, fmt.Sprintf("Container %s runs again, but it exited %s ago with exit code %d%s. Restarts: %d.",
				s.Name, console.Duration(v.Now.Sub(last.FinishedAt.Time)), last.ExitCode, outOfMemory(last), s.RestartCount),
				actionAfterExit(v.Instance, s.Name, last))
		}
	}
	return false
}

func outOfMemory(t *corev1.ContainerStateTerminated) string {
	if t.Reason == "OOMKilled" {
		return " (out of memory)"
	}
	return ""
}

func actionAfterExit(i *bergv1.ChallengeInstance, container string, t *corev1.ContainerStateTerminated) string {
	if t.Reason == "OOMKilled" {
		return fmt.Sprintf("Give it more memory: raise resourceLimits.memory of the container %s in the Challenge %s, then run kubectl berg rollout %s -n %s",
			container, i.Spec.ChallengeRef.Name, i.Spec.ChallengeRef.Name, i.Namespace)
	}
	return logsCommand(i, container) + " --previous"
}

// crashed explains a container that exits or cannot be started.
func (v View) crashed(f *Finding, subject, name, reason string) bool {
	for _, p := range currentPods(v) {
		for _, s := range p.Status.ContainerStatuses {
			last := s.LastTerminationState.Terminated
			if last == nil || name != "" && s.Name != name {
				continue
			}
			if last.Reason == "StartError" || last.Reason == "ContainerCannotRun" {
				return f.set(Problem, fmt.Sprintf("Container %s cannot be started by its node.", s.Name),
					"The message is the container runtime's. Usually the program is missing in the image, or is not executable.")
			}
			return f.set(Problem, fmt.Sprintf("Container %s keeps exiting with exit code %d%s. Restarts: %d.", s.Name, last.ExitCode, outOfMemory(last), s.RestartCount),
				actionAfterExit(v.Instance, s.Name, last))
		}
	}
	if reason != "CrashLoopBackOff" {
		return f.set(Problem, fmt.Sprintf("%s cannot be started by its node: %s.", subject, reason), "The message is the container runtime's.")
	}
	return f.set(Problem, subject+" keeps exiting.", logsCommand(v.Instance, name)+" --previous")
}

// notReady explains pods of which none has failed.
func (v View) notReady(f *Finding, level Level) bool {
	i := v.Instance
	var since time.Duration
	if at := i.Status.StartedAt; at != nil {
		since = v.Now.Sub(at.Time)
	}
	started := "Wait: the instance was started " + console.Duration(since) + " ago."
	for _, p := range currentPods(v) {
		container := p.Labels[bergv1.LabelContainer]
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Running != nil && !s.Ready {
				if v.newestEvent(f, "Unhealthy", "") == "" && since < slowStart && level == Waiting {
					return f.set(Waiting, fmt.Sprintf("Container %s runs and is not ready yet.", container), started)
				}
				return f.set(Problem, fmt.Sprintf("Container %s runs, but its readiness probe fails.", container),
					fmt.Sprintf("Compare readinessProbe in the Challenge %s with the port on which the container listens: kubectl berg logs %s -n %s -c %s",
						i.Spec.ChallengeRef.Name, i.Name, i.Namespace, container))
			}
			if s.State.Waiting != nil && since > slowStart {
				if v.newestEvent(f, "FailedMount", "") != "" {
					return f.set(Problem, fmt.Sprintf("Container %s does not start: a volume cannot be mounted.", container), "The message is the node's. The node retries.")
				}
				return f.set(Problem, fmt.Sprintf("Container %s has been starting for %s.", container, console.Duration(since)),
					"The node may still pull a large image: kubectl get events -n "+NamespaceOf(i)+" --field-selector reason=Pulling")
			}
		}
	}
	if level == Waiting && since < slowStart {
		return f.set(Waiting, "The pods are starting.", started+" The first pull of an image takes time.")
	}
	return f.set(Problem, "A container is not ready, for a reason that is not known.", logsCommand(i, containerOf(strings.Join(f.Evidence, " "))))
}

// newestEvent returns the message of the newest event with a reason and a word, and adds it to the
// evidence.
func (v View) newestEvent(f *Finding, reason, word string) string {
	var newest *corev1.Event
	for n := range v.Events {
		e := &v.Events[n]
		if e.Reason != reason || !strings.Contains(strings.ToLower(e.Message), word) {
			continue
		}
		if started := v.Instance.Status.StartedAt; started != nil && eventTime(*e).Before(started.Time) {
			continue // of an earlier instance
		}
		if newest == nil || eventTime(*e).After(eventTime(*newest)) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	f.Evidence = append(f.Evidence, fmt.Sprintf("event %s: %s", newest.Reason, newest.Message))
	return newest.Message
}

func eventTime(e corev1.Event) time.Time {
	at := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.LastTimestamp.Time} {
		if t.After(at) {
			at = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	return at
}

// pullFailure explains the answer of a registry.
func pullFailure(message string) (text, do string) {
	text = strings.ToLower(message)
	contains := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case contains("toomanyrequests", "too many requests", "rate limit", " 429"):
		return ": the registry limits the rate of pulls",
			"Wait, use a mirror, or set the operator's PULL_SECRET_NAME to a login with a higher limit. The node retries within five minutes."
	case contains("unauthorized", "authentication required", "denied", "forbidden", " 401", " 403", "insufficient_scope"):
		return ": the registry refuses access",
			"Store a login in a Secret in the operator's namespace and set PULL_SECRET_NAME to its name, or correct that Secret."
	case contains("invalidimagename", "invalid reference", "couldn't parse image"):
		return ": its name is invalid", "Correct image in the Challenge, as in ghcr.io/example/web:1, then run kubectl berg rollout."
	case contains("not found", "manifest unknown", "name unknown", "does not exist"):
		return ": the registry does not have it", "Push the image, or correct image in the Challenge and run kubectl berg rollout."
	case contains("x509", "certificate"):
		return ": the node does not trust the registry's certificate", "Make the container runtime of the nodes trust the registry's certificate authority."
	case contains("no such host", "lookup", "timeout", "connection refused", "i/o", "unreachable"):
		return ": the node cannot reach the registry", "Check the registry's name in image, and the node's DNS and outbound connections."
	case contains("errimageneverpull"):
		return ": it is not on the node, and CHALLENGE_IMAGE_PULL_POLICY is Never", "Load the image onto the nodes, or change the policy."
	default:
		return "", "Check the image's name in the Challenge, and whether it needs a login (PULL_SECRET_NAME). For the registry's answer: kubectl get events -A --field-selector reason=Failed"
	}
}
