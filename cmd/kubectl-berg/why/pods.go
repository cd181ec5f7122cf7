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

// slow is from when a start is not usual any more.
const slow = 2 * time.Minute

// pods says why pods are not ready: the reason is the condition's, the details are theirs.
func (v View) pods(f *Finding, c *metav1.Condition, reason string, verdict Verdict) bool {
	f.from(c)
	i := v.Instance
	name := containerOf(c.Message)
	subject := "A container"
	if name != "" {
		subject = "Container " + name
	}
	if reason == bergv1.ReasonStartDeadline {
		sentence := "It was not ready within the operator's CHALLENGE_START_DEADLINE"
		inner := *c
		inner.Reason = deeper(v, c.Message)
		if inner.Reason != "" {
			g := Finding{}
			v.pods(&g, &inner, inner.Reason, Wrong)
			f.Evidence = append(f.Evidence, g.Evidence[min(1, len(g.Evidence)):]...)
			return f.says(Wrong, sentence+": "+g.Sentence, g.Do)
		}
		return f.says(Wrong, sentence+".", logsOf(i, name))
	}
	switch reason {
	case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
		image := v.imageOf(name)
		text, do := pullProblem(v.told(f, "Failed", "pull") + " " + c.Message)
		return f.says(Wrong, fmt.Sprintf("%s does not start: its image%s cannot be pulled%s.", subject, image, text), do)
	case "CrashLoopBackOff", "RunContainerError", "StartError", "ContainerCannotRun", "CreateContainerError", "CreateContainerConfigError":
		return v.crash(f, subject, name, reason)
	case "Unschedulable":
		return f.says(verdictOf(verdict, Wrong), fmt.Sprintf("%s finds no node that has room for it.", subject),
			"Add nodes, end instances, or lower resourceRequests in the Challenge; the message is the scheduler's. kubectl berg plan tells what the event needs.")
	case bergv1.ReasonRefused:
		return f.says(Wrong, fmt.Sprintf("%s does not start: the API server refuses its pod.", subject),
			"Change what the message names, a RuntimeClass, a quota, a LimitRange or an admission policy; it is tried again within a minute.")
	case "FailedCreatePodSandBox":
		return f.says(Wrong, fmt.Sprintf("%s does not start: its node cannot make a sandbox for it.", subject),
			"The node's container runtime or network plugin is at fault, in the words of the message; the node tries again.")
	case "Evicted":
		return f.says(Wrong, fmt.Sprintf("%s was evicted: its node ran short of memory or disk, or it wrote more than CHALLENGE_EPHEMERAL_STORAGE_LIMIT.", subject),
			"If it lasts, raise resourceRequests.memory in the Challenge, or add nodes.")
	case bergv1.ReasonWaiting:
		return f.says(verdict, "It waits for something before its pods.", "Wait: it goes on by itself.")
	case bergv1.ReasonPodsNotReady, bergv1.ReasonStarting:
		return v.notReady(f, verdict)
	default:
		return f.says(Wrong, fmt.Sprintf("%s does not come up: %s.", subject, reason), logsOf(i, name))
	}
}

// verdictOf is the graver of two.
func verdictOf(a, b Verdict) Verdict {
	if a == Wrong || b == Wrong {
		return Wrong
	}
	return cmp.Or(a, b)
}

// named finds the container that a message of the operator begins with.
var named = regexp.MustCompile(`(?:^|\. )Container ([a-z][-a-z0-9]*):|Not ready: ([a-z][-a-z0-9]*)`)

func containerOf(message string) string {
	m := named.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	return cmp.Or(m[1], m[2])
}

// deeper is the reason that stands behind a deadline, "" if none is known.
func deeper(v View, message string) string {
	for _, p := range ownPods(v) {
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

func logsOf(i *bergv1.ChallengeInstance, container string) string {
	if container == "" {
		return fmt.Sprintf("Read what its containers say: kubectl berg logs %s -n %s", i.Name, i.Namespace)
	}
	return fmt.Sprintf("Read what it says: kubectl berg logs %s -n %s -c %s", i.Name, i.Namespace, container)
}

// imageOf is the image of a container, with a space before it.
func (v View) imageOf(container string) string {
	for _, p := range ownPods(v) {
		for _, c := range p.Spec.Containers {
			if c.Name == container {
				return " " + c.Image
			}
		}
	}
	return ""
}

// crash: a container ends by itself.
func (v View) crash(f *Finding, subject, name, reason string) bool {
	for _, p := range ownPods(v) {
		for _, s := range p.Status.ContainerStatuses {
			last := s.LastTerminationState.Terminated
			if last == nil || name != "" && s.Name != name {
				continue
			}
			if last.Reason == "StartError" || last.Reason == "ContainerCannotRun" {
				return f.says(Wrong, fmt.Sprintf("Container %s cannot be started by its node.", s.Name),
					"The message is the container runtime's: usually a program that is not in the image, or may not be executed.")
			}
			return f.says(Wrong, fmt.Sprintf("Container %s ends again and again: exit code %d%s, %d restarts.", s.Name, last.ExitCode, inWords(last), s.RestartCount),
				afterEnd(v.Instance, s.Name, last))
		}
	}
	if reason != "CrashLoopBackOff" {
		return f.says(Wrong, fmt.Sprintf("%s cannot be started by its node: %s.", subject, reason), "The message is the container runtime's.")
	}
	i := v.Instance
	do := fmt.Sprintf("Read its last words: kubectl berg logs %s -n %s --previous", i.Name, i.Namespace)
	if name != "" {
		do = fmt.Sprintf("Read its last words: kubectl berg logs %s -n %s -c %s --previous", i.Name, i.Namespace, name)
	}
	return f.says(Wrong, fmt.Sprintf("%s ends again and again.", subject), do)
}

// notReady: nothing has failed, and yet it is not ready.
func (v View) notReady(f *Finding, verdict Verdict) bool {
	i := v.Instance
	var since time.Duration
	if at := i.Status.StartedAt; at != nil {
		since = v.Now.Sub(at.Time)
	}
	for _, p := range ownPods(v) {
		container := p.Labels[bergv1.LabelContainer]
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Running != nil && !s.Ready {
				why := v.told(f, "Unhealthy", "")
				if why == "" && since < slow && verdict == Underway {
					return f.says(Underway, fmt.Sprintf("Container %s runs and is not ready yet.", container), "Wait: it was started "+console.Duration(since)+" ago.")
				}
				return f.says(Wrong, fmt.Sprintf("Container %s runs, and its readiness probe fails.", container),
					fmt.Sprintf("Compare readinessProbe in the Challenge %s with what the container listens to: kubectl berg logs %s -n %s -c %s",
						i.Spec.ChallengeRef.Name, i.Name, i.Namespace, container))
			}
			if s.State.Waiting != nil && since > slow {
				if why := v.told(f, "FailedMount", ""); why != "" {
					return f.says(Wrong, fmt.Sprintf("Container %s waits for a file that cannot be mounted.", container), "The message is the node's; it tries again.")
				}
				return f.says(Wrong, fmt.Sprintf("Container %s has been starting for %s.", container, console.Duration(since)),
					"A large image may still be being pulled: kubectl get events -n "+namespaceOf(i)+" --field-selector reason=Pulling")
			}
		}
	}
	if verdict == Underway && since < slow {
		return f.says(Underway, "Its pods are starting.", fmt.Sprintf("Wait: it was started %s ago, and a first pull of an image takes its time.", console.Duration(since)))
	}
	return f.says(Wrong, "A container is not ready, and nothing says why.", logsOf(i, containerOf(strings.Join(f.Evidence, " "))))
}

// told returns the newest event of a reason that contains a word, and keeps it as evidence.
func (v View) told(f *Finding, reason, word string) string {
	var newest *corev1.Event
	for n := range v.Events {
		e := &v.Events[n]
		if e.Reason != reason || !strings.Contains(strings.ToLower(e.Message), word) {
			continue
		}
		if started := v.Instance.Status.StartedAt; started != nil && when(*e).Before(started.Time) {
			continue // of an instance before this one
		}
		if newest == nil || when(*e).After(when(*newest)) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	f.Evidence = append(f.Evidence, fmt.Sprintf("event %s: %s", newest.Reason, newest.Message))
	return newest.Message
}

func when(e corev1.Event) time.Time {
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

// pullProblem reads what a registry said.
func pullProblem(message string) (text, do string) {
	text = strings.ToLower(message)
	contains := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case contains("toomanyrequests", "too many requests", "rate limit", " 429"):
		return ": the registry limits how often it answers",
			"Wait, use a mirror, or set the operator's PULL_SECRET_NAME to a login with a higher limit; the node tries again within five minutes."
	case contains("unauthorized", "authentication required", "denied", "forbidden", " 401", " 403", "insufficient_scope"):
		return ": the registry does not let the cluster in",
			"Put a login into a Secret of the operator's namespace and set PULL_SECRET_NAME to its name, or correct that Secret."
	case contains("invalidimagename", "invalid reference", "couldn't parse image"):
		return ": its name is not one", "Correct image in the Challenge, as in ghcr.io/example/web:1; then kubectl berg rollout."
	case contains("not found", "manifest unknown", "name unknown", "does not exist"):
		return ": the registry does not have it", "Correct image in the Challenge, or push the image; then kubectl berg rollout, if the name was wrong."
	case contains("x509", "certificate"):
		return ": the registry's certificate is not trusted by the node", "Let the nodes' container runtime trust the registry's authority."
	case contains("no such host", "lookup", "timeout", "connection refused", "i/o", "unreachable"):
		return ": the node cannot reach the registry", "Check the registry's name in image, and the node's DNS and way out."
	case contains("errimageneverpull"):
		return ": it is not on the node, and CHALLENGE_IMAGE_PULL_POLICY is Never", "Load the image to the nodes, or set another policy."
	default:
		return "", "Check the image's name in the Challenge, and whether it needs a login (PULL_SECRET_NAME). The registry's words: kubectl get events -A --field-selector reason=Failed"
	}
}
