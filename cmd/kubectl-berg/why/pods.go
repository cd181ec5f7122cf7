package why

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// What counts as slow, and what as recent.
const (
	// slowStart is the time after which a start is no longer usual.
	slowStart = 2 * time.Minute
	// recentExit is the maximum age of an exit that is reported although the instance is healthy.
	recentExit = 10 * time.Minute
)

// pods explains why pods are not ready: the reason comes from the condition, the details come from the pods.
func (v View) pods(f *Finding, c *metav1.Condition, reason string, level console.Level) bool {
	f.addCondition(c)
	i := v.Instance
	name := parseContainer(c.Message)
	subject := "A container"
	if name != "" {
		subject = "Container " + name
	}
	if view.CannotPull(reason) {
		image := v.containerImage(name)
		text, do := pullFailure(withoutImage(v.newestEvent(f, "Failed", "pull")+" "+c.Message, image), v.thanTheNode(name))
		return f.set(console.Problem, fmt.Sprintf("%s does not start: its image%s cannot be pulled%s.", subject, spaced(image), text), do)
	}
	switch reason {
	case bergv1.ReasonStartDeadline:
		return v.startDeadline(f, c, name)
	case "CrashLoopBackOff", "RunContainerError", "StartError", "ContainerCannotRun", "CreateContainerError", "CreateContainerConfigError", "PostStartHookError":
		return v.crashed(f, subject, name, reason, c.Message)
	case "Unschedulable":
		text, do := unschedulable(c.Message)
		return f.set(console.Problem, fmt.Sprintf("%s does not start: %s.", subject, text), do)
	case bergv1.ReasonRefused, bergv1.ReasonWriteFailed:
		text, do := "the API server refuses its pod", "Change what the message names: a RuntimeClass, a quota, a LimitRange or an admission policy."
		if reason == bergv1.ReasonWriteFailed {
			text = "its pod is not created"
		}
		if meaning, known := refusal.Explain(c.Message); known {
			text, do = text+": "+meaning.Text, meaning.Do
		}
		return f.set(console.Problem, fmt.Sprintf("%s does not start: %s.", subject, text), do+" Kubernetes retries within a minute.")
	case "FailedCreatePodSandBox":
		return f.set(console.Problem, fmt.Sprintf("%s does not start: its node cannot create the pod sandbox.", subject),
			"The message names the fault of the node's container runtime or network plugin. The node retries.")
	case "Evicted":
		text, do := evictedAdvice(reason)
		return f.set(console.Problem, fmt.Sprintf("%s %s.", subject, text), do)
	case bergv1.ReasonWaiting:
		return f.set(level, "The pods wait for an earlier step.", "Wait: the operator continues by itself.")
	case bergv1.ReasonPodsNotReady, bergv1.ReasonStarting:
		return v.notReady(f, level)
	}
	if text, do := rejection(reason); text != "" {
		return f.set(console.Problem, fmt.Sprintf("%s does not run: %s.", subject, text), do)
	}
	return f.set(console.Problem, fmt.Sprintf("%s does not start: %s.", subject, reason), logsCommand(i, name))
}

// startDeadline explains why the pods did not become ready in time.
func (v View) startDeadline(f *Finding, c *metav1.Condition, name string) bool {
	const sentence = "The instance was not ready within the operator's setting CHALLENGE_START_DEADLINE"
	inner := *c
	inner.Reason = reasonBehindDeadline(v, c.Message)
	switch {
	case inner.Reason == "" && len(currentPods(v)) == 0:
		return f.set(console.Problem, sentence+".", logsCommand(v.Instance, name))
	case inner.Reason == "":
		inner.Reason = bergv1.ReasonPodsNotReady
	}
	g := Finding{}
	v.pods(&g, &inner, inner.Reason, console.Problem)
	f.Evidence = append(f.Evidence, g.Evidence[min(1, len(g.Evidence)):]...)
	return f.set(console.Problem, sentence+". "+g.Sentence, g.Do)
}

// containerPattern finds the container in a message of the operator.
var containerPattern = regexp.MustCompile(`(?:^|\. )Container ([a-z][-a-z0-9]*):|Not ready: ([a-z][-a-z0-9]*)`)

// reasonPattern finds the reason of Kubernetes in a message of the operator.
var reasonPattern = regexp.MustCompile(`Container [a-z][-a-z0-9]*: (?:[^ :]+, which admission added to the pod: )?([A-Z][A-Za-z0-9]+)(?::|$)`)

// parseContainer returns "" for a message that names no container, or is of an earlier operator.
func parseContainer(message string) string {
	m := containerPattern.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	return cmp.Or(m[1], m[2])
}

// reasonBehindDeadline is the reason for an exceeded deadline, "" if it is not known.
func reasonBehindDeadline(v View, message string) string {
	for _, p := range currentPods(v) {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := podstate.Stuck(s); w != nil {
				return w.Reason
			}
		}
		for _, pc := range p.Status.Conditions {
			if pc.Type == corev1.PodScheduled && pc.Status == corev1.ConditionFalse {
				return pc.Reason
			}
		}
	}
	// The message has the reason of the first container that does not come up: without the pods, it is the only source.
	if found := reasonPattern.FindStringSubmatch(message); found != nil {
		return found[1]
	}
	return ""
}

// logsCommand is the remedy where only the log can say more.
func logsCommand(i *bergv1.ChallengeInstance, container string) string {
	command := fmt.Sprintf("Read the logs: kubectl berg logs %s -n %s", i.Name, i.Namespace)
	if container != "" {
		command += " -c " + container
	}
	return command
}

// containerImage is the image of a container, or of one that was added to its pod and cannot be pulled; "" if it is not known.
func (v View) containerImage(container string) string {
	for _, p := range currentPods(v) {
		if p.Labels[bergv1.LabelContainer] != container {
			continue
		}
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := s.State.Waiting; w != nil && s.Name != container && strings.Contains(w.Reason, "Image") {
				container = s.Name
			}
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			if c.Name == container {
				return c.Image
			}
		}
	}
	return ""
}

// spaced keeps a sentence without double spaces where a name is not known.
func spaced(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
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
			return f.set(console.Problem, fmt.Sprintf("Container %s runs again, but it exited %s ago with exit code %d%s. Restarts: %d.",
				s.Name, console.Duration(v.Now.Sub(last.FinishedAt.Time)), last.ExitCode, v.exitCause(f, s.Name, last), s.RestartCount),
				v.actionAfterExit(p, s.Name, last))
		}
	}
	return false
}

// replacedPod reports a pod that was evicted, or that its node rejected, although its replacement runs: the pod stays, and says why.
func replacedPod(v View, f *Finding) bool {
	for _, p := range ownPods(v) {
		text := endedText(p)
		if text == "" {
			continue
		}
		age := v.Now.Sub(endTime(p))
		f.Evidence = append(f.Evidence, fmt.Sprintf("pod %s, which ended %s ago: %s", p.Name, console.Duration(age), text))
		if age > recentExit || f.Sentence != "" {
			continue
		}
		f.Reason = p.Status.Reason
		_, do := evictedAdvice(p.Status.Reason)
		return f.set(console.Problem, fmt.Sprintf("Container %s runs again, but its pod ended %s ago: %s.", p.Labels[bergv1.LabelContainer], console.Duration(age), text), do)
	}
	return false
}

// endTime is when a pod ended, as far as its status says.
func endTime(p corev1.Pod) time.Time {
	moment := p.CreationTimestamp.Time
	for _, s := range p.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.FinishedAt.After(moment) {
			moment = t.FinishedAt.Time
		}
	}
	for _, c := range p.Status.Conditions {
		if c.LastTransitionTime.After(moment) {
			moment = c.LastTransitionTime.Time
		}
	}
	return moment
}

// evictedAdvice is rejection with the case of a node that removed a pod itself.
func evictedAdvice(reason string) (text, do string) {
	if reason == "Evicted" {
		return "was evicted: its node ran out of memory or disk, or the container exceeded CHALLENGE_EPHEMERAL_STORAGE_LIMIT",
			"If this continues, raise resourceRequests.memory in the Challenge, let the program write less, or add nodes."
	}
	return rejection(reason)
}

// exitCause names in parentheses the cause of a container's end, "" if only its log may say it.
func (v View) exitCause(f *Finding, container string, t *corev1.ContainerStateTerminated) string {
	if t.Reason == "OOMKilled" {
		return " (out of memory)"
	}
	if e := v.livenessKill(container, t); e != nil {
		f.addEvent(e)
		if strings.Contains(e.Message, startupProbe) {
			return " (killed because its port accepted no connection in the time that its liveness probe allows)"
		}
		return " (killed because its liveness probe failed)"
	}
	if v.wrongArchitecture(container, t) {
		return " (the node cannot execute its program: it was built for another CPU architecture" + v.thanTheNode(container) + ", or is a script without a first line such as #!/bin/sh)"
	}
	if t.ExitCode == 0 {
		return " (its program ended by itself)"
	}
	if usual := exitMeaning(t); usual.text != "" {
		return " (" + usual.text + ")"
	}
	return ""
}

// startupProbe names the operator's startup probe in events of the kubelet. It kills a container that has a liveness
// probe, too.
const startupProbe = "failed startup probe"

// livenessKill returns the event with which the kubelet killed a container for its liveness probe, nil if something
// else ended it. The exit code does not say: a program may end with any code when it is asked to.
func (v View) livenessKill(container string, t *corev1.ContainerStateTerminated) *corev1.Event {
	for n := range v.Events {
		e := &v.Events[n]
		prefix := "Container " + container + " "
		if e.Reason == "Killing" && (strings.Contains(e.Message, prefix+"failed liveness probe") || strings.Contains(e.Message, prefix+startupProbe)) &&
			!eventTime(*e).Before(t.StartedAt.Time) {
			return e
		}
	}
	return nil
}

// actionAfterExit returns a remedy for a container that has ended, the most certain cause first; the end of the log and
// the exit code come last.
func (v View) actionAfterExit(p corev1.Pod, container string, t *corev1.ContainerStateTerminated) string {
	i := v.Instance
	if container != p.Labels[bergv1.LabelContainer] {
		return fmt.Sprintf("The Challenge has no container %s: an admission webhook added it to the pod. Ask the administrator for its resources and settings, or to leave out the namespaces of instances. "+
			"Its log: kubectl logs -n %s %s -c %s --previous", container, p.Namespace, cmp.Or(p.Name, "POD"), container)
	}
	challenge := i.Spec.ChallengeRef.Name
	rollout := fmt.Sprintf("then run kubectl berg rollout %s -n %s", challenge, i.Namespace)
	logs := logsCommand(i, container) + " --previous"
	switch {
	case t.Reason == "OOMKilled":
		return fmt.Sprintf("Give it more memory: raise resourceLimits.memory of the container %s in the Challenge %s, %s", container, challenge, rollout)
	case v.livenessKill(container, t) != nil:
		return v.livenessAdvice(container)
	case v.wrongArchitecture(container, t):
		return buildProgram
	case t.ExitCode == 0:
		return fmt.Sprintf("The program of a container must not end. If it serves one connection, let it fork, as in socat TCP-LISTEN:1337,reuseaddr,fork EXEC:./chall, or set connectAtStart: false on its port; if it starts a service in the background, start it in the foreground. %s", logs)
	}
	if do := cmp.Or(logAdvice(v.LogEnds[container]), exitMeaning(t).do); do != "" {
		return do + " " + logs
	}
	return logs
}

// mayBeLiveness is in the operator's message about a container that has a liveness probe and was ended by a signal.
const mayBeLiveness = "its liveness probe may have stopped it"

// livenessAdvice names the container of the Challenge, whose probe the kubelet runs.
func (v View) livenessAdvice(container string) string {
	i := v.Instance
	return fmt.Sprintf("Compare livenessProbe of the container %s in the Challenge %s with what the program answers, or allow more time with initialDelaySeconds and failureThreshold, "+
		"then run kubectl berg rollout %s -n %s. %s --previous", container, i.Spec.ChallengeRef.Name, i.Spec.ChallengeRef.Name, i.Namespace, logsCommand(i, container))
}

// neverRan reports whether the container runtime could not start a container. Its message is the runtime's then.
func neverRan(t *corev1.ContainerStateTerminated) bool {
	return t.Reason == "StartError" || t.Reason == "ContainerCannotRun"
}

// execFormat is the kernel's error for a program that it cannot execute. Some container runtimes write it into the log.
const execFormat = "exec format error"

// wrongArchitecture goes by the words of the kernel, from the runtime or from the log: an exit code does not say it.
func (v View) wrongArchitecture(container string, t *corev1.ContainerStateTerminated) bool {
	if neverRan(t) {
		return strings.Contains(t.Message, execFormat)
	}
	return t.ExitCode != 0 && strings.Contains(v.LogEnds[container], execFormat)
}

// thanTheNode names the CPU architecture of the node of a container, "" if it is not known.
func (v View) thanTheNode(container string) string {
	for _, p := range currentPods(v) {
		if arch := v.Architectures[p.Spec.NodeName]; arch != "" && p.Labels[bergv1.LabelContainer] == container {
			return fmt.Sprintf(" than %s, that of node %s", arch, p.Spec.NodeName)
		}
	}
	return ""
}

// Log is the log of a container.
type Log struct {
	Pod, Container string
	// Previous: the log is of the run before the last restart.
	Previous bool
}

// maxLogs is the maximum number of logs to read.
const maxLogs = 4

// Logs returns the logs whose end may say why a container ended.
func Logs(v View) (out []Log) {
	for _, p := range currentPods(v) {
		for _, s := range p.Status.ContainerStatuses {
			t := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
			if t == nil || t.ExitCode == 0 || t.Reason == "OOMKilled" || neverRan(t) || v.livenessKill(s.Name, t) != nil || len(out) == maxLogs {
				continue
			}
			out = append(out, Log{Pod: p.Name, Container: s.Name, Previous: s.State.Terminated == nil})
		}
	}
	return out
}

// Nodes returns the nodes whose CPU architecture says more about the problem.
func Nodes(v View) (out []string) {
	for _, p := range currentPods(v) {
		matches := func(s corev1.ContainerStatus) bool {
			t := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
			return t != nil && v.wrongArchitecture(s.Name, t) || s.State.Waiting != nil && strings.Contains(s.State.Waiting.Reason, "Image")
		}
		if p.Spec.NodeName != "" && !slices.Contains(out, p.Spec.NodeName) && slices.ContainsFunc(p.Status.ContainerStatuses, matches) {
			out = append(out, p.Spec.NodeName)
		}
	}
	return out
}

// crashed explains a container that exits or cannot be started. message is the message of the condition.
func (v View) crashed(f *Finding, subject, name, reason, message string) bool {
	for _, p := range currentPods(v) {
		if name != "" && p.Labels[bergv1.LabelContainer] != name {
			continue
		}
		s, last := ailing(p)
		switch {
		case last == nil:
		case neverRan(last) && v.wrongArchitecture(s.Name, last):
			return f.set(console.Problem, fmt.Sprintf("Container %s cannot be started by its node: its program was built for another CPU architecture%s, or is a script without a first line such as #!/bin/sh.",
				s.Name, v.thanTheNode(s.Name)), buildProgram)
		case neverRan(last):
			return f.set(console.Problem, fmt.Sprintf("Container %s cannot be started by its node.", s.Name), startAdvice(last.Message))
		default:
			return f.set(console.Problem, fmt.Sprintf("Container %s keeps exiting with exit code %d%s. Restarts: %d.", s.Name, last.ExitCode, v.exitCause(f, s.Name, last), s.RestartCount),
				v.actionAfterExit(p, s.Name, last))
		}
	}
	if container, t := endIn(message); t != nil && reason == "CrashLoopBackOff" { // who may not read pods knows this much
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: InstanceNamespace(v.Instance), Labels: map[string]string{bergv1.LabelContainer: name}}}
		container = cmp.Or(container, name)
		if neverRan(t) {
			return f.set(console.Problem, fmt.Sprintf("Container %s cannot be started by its node.", container), startAdvice(t.Message))
		}
		cause, do := v.exitCause(f, container, t), v.actionAfterExit(pod, container, t)
		if strings.Contains(message, mayBeLiveness) {
			cause, do = " ("+mayBeLiveness+")", v.livenessAdvice(container)
		}
		return f.set(console.Problem, fmt.Sprintf("Container %s keeps exiting with exit code %d%s.", container, t.ExitCode, cause), do)
	}
	if reason != "CrashLoopBackOff" {
		return f.set(console.Problem, fmt.Sprintf("%s cannot be started by its node: %s.", subject, reason), startAdvice(v.newestEvent(f, "Failed", "")+" "+message))
	}
	return f.set(console.Problem, subject+" keeps exiting.", logsCommand(v.Instance, name)+" --previous")
}

// The forms in which the operator writes how a container ended. Its tests and those here keep them equal.
var (
	addedPattern = regexp.MustCompile(`: ([^ ,:]+), which admission added to the pod: `)
	exitPattern  = regexp.MustCompile(`last exit code (\d+) \((\w+)\)`)
	startPattern = regexp.MustCompile(`: (StartError|ContainerCannotRun): (.+)`)
)

// endIn parses the operator's message about the end of a container, nil if the message has none. container names a
// container that admission added, "" for a container of the Challenge.
func endIn(message string) (container string, t *corev1.ContainerStateTerminated) {
	if found := addedPattern.FindStringSubmatch(message); found != nil {
		container = found[1]
	}
	if found := startPattern.FindStringSubmatch(message); found != nil {
		return container, &corev1.ContainerStateTerminated{Reason: found[1], Message: found[2]}
	}
	if strings.Contains(message, "its program ended by itself") {
		return container, &corev1.ContainerStateTerminated{Reason: "Completed"}
	}
	found := exitPattern.FindStringSubmatch(message)
	if found == nil {
		return container, nil
	}
	code, err := strconv.ParseInt(found[1], 10, 32)
	if err != nil {
		return container, nil
	}
	return container, &corev1.ContainerStateTerminated{Reason: found[2], ExitCode: int32(code)}
}

// ailing returns the container of a pod that its node could not start or that keeps exiting, and how it ended last; nil if
// none has ended, or waits for something else. One that is not ready goes before the others.
func ailing(p corev1.Pod) (found corev1.ContainerStatus, last *corev1.ContainerStateTerminated) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && notCreated(w.Reason) {
			return s, nil // how an earlier attempt ended says nothing
		}
		end := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
		isInit := slices.ContainsFunc(p.Status.InitContainerStatuses, func(i corev1.ContainerStatus) bool { return i.Name == s.Name })
		if end == nil || isInit && (s.Ready || end.ExitCode == 0) {
			continue
		}
		if last == nil || found.Ready && !s.Ready {
			found, last = s, end
		}
	}
	return found, last
}

// notCreated reports whether a container waits because its node could not even create it.
func notCreated(reason string) bool {
	return reason == "CreateContainerError" || reason == "CreateContainerConfigError"
}

// notReady explains pods that are not ready although none has failed.
func (v View) notReady(f *Finding, level console.Level) bool {
	i := v.Instance
	var since time.Duration
	if started := i.Status.StartedAt; started != nil {
		since = v.Now.Sub(started.Time)
	}
	started := "Wait: the instance was started " + console.Duration(since) + " ago."
	for _, p := range currentPods(v) {
		container := p.Labels[bergv1.LabelContainer]
		if sentence, do := unplaced(p, container); sentence != "" && since > slowStart {
			return f.set(console.Problem, sentence, do)
		}
		if nodeSilent(p) {
			return f.set(console.Problem, fmt.Sprintf("Container %s runs on node %s, which does not answer.", container, p.Spec.NodeName),
				"Look at the node: kubectl get nodes. Kubernetes starts the container on another node after five minutes.")
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Running != nil && !s.Ready {
				if v.newestEvent(f, "Unhealthy", "") == "" && since < slowStart && level == console.Waiting {
					return f.set(console.Waiting, fmt.Sprintf("Container %s runs and is not ready yet.", container), started)
				}
				if port := startupPort(p, s.Name); port != "" {
					return f.set(console.Problem, fmt.Sprintf("Container %s runs, but its port %s accepts no connection.", container, port),
						fmt.Sprintf("Compare ports in the Challenge %s with the port on which the program listens, at 0.0.0.0 and not at 127.0.0.1. If it opens the port later, set connectAtStart: false on the port. %s",
							i.Spec.ChallengeRef.Name, logsCommand(i, container)))
				}
				return f.set(console.Problem, fmt.Sprintf("Container %s runs, but its readiness probe fails.", container),
					fmt.Sprintf("Compare readinessProbe in the Challenge %s with the port on which the container listens: kubectl berg logs %s -n %s -c %s",
						i.Spec.ChallengeRef.Name, i.Name, i.Namespace, container))
			}
			if t := s.State.Terminated; t != nil {
				return f.set(console.Problem, fmt.Sprintf("Container %s exited with exit code %d%s.", s.Name, t.ExitCode, v.exitCause(f, s.Name, t)), v.actionAfterExit(p, s.Name, t))
			}
			if s.State.Waiting != nil && since > slowStart {
				if v.newestEvent(f, "FailedMount", "") != "" {
					return f.set(console.Problem, fmt.Sprintf("Container %s does not start: a volume cannot be mounted.", container), "The message is the node's. The node retries.")
				}
				return f.set(console.Problem, fmt.Sprintf("Container %s has been starting for %s.", container, console.Duration(since)),
					"The node may still pull a large image: kubectl get events -n "+InstanceNamespace(i)+" --field-selector reason=Pulling")
			}
		}
	}
	if level == console.Waiting && since < slowStart {
		return f.set(console.Waiting, "The pods are starting.", started+" The first pull of an image takes time.")
	}
	return f.set(console.Problem, "A container is not ready, for a reason that is not known.", logsCommand(i, parseContainer(strings.Join(f.Evidence, " "))))
}

// nodeSilent reports whether a pod counts as not ready although its node reported last that its containers are.
func nodeSilent(p corev1.Pod) bool {
	unready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse
	})
	return unready && p.Status.Phase == corev1.PodRunning && len(p.Status.ContainerStatuses) > 0 && len(p.Spec.ReadinessGates) == 0 &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready })
}

// unplaced explains a pod that no scheduler has tried to assign to a node, "" for the others.
func unplaced(p corev1.Pod, container string) (sentence, do string) {
	if p.Spec.NodeName != "" || len(p.Status.ContainerStatuses) > 0 {
		return "", ""
	}
	index := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	switch {
	case index < 0:
		return fmt.Sprintf("Container %s does not start: no scheduler has looked at its pod.", container),
			"Check that the cluster's scheduler works: kubectl get pods -n kube-system"
	case p.Status.Conditions[index].Reason == corev1.PodReasonSchedulingGated:
		return fmt.Sprintf("Container %s does not start: its pod has a scheduling gate, which an admission webhook added.", container),
			fmt.Sprintf("Ask the administrator to open the gate, or to leave out the namespaces of instances: kubectl get pods -n %s -o yaml shows spec.schedulingGates.", p.Namespace)
	}
	return "", ""
}

// startupPort is the port that must accept a connection before a container counts as started, "" if it has started.
func startupPort(p corev1.Pod, container string) string {
	started := slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == container && s.Started != nil && *s.Started
	})
	for _, c := range p.Spec.Containers {
		if c.Name == container && !started && c.StartupProbe != nil && c.StartupProbe.TCPSocket != nil {
			return c.StartupProbe.TCPSocket.Port.String()
		}
	}
	return ""
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
			continue // the event is about an earlier instance
		}
		if newest == nil || eventTime(*e).After(eventTime(*newest)) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	f.addEvent(newest)
	return newest.Message
}

// addEvent quotes an event.
func (f *Finding) addEvent(e *corev1.Event) {
	f.Evidence = append(f.Evidence, fmt.Sprintf("event %s: %s", e.Reason, e.Message))
}

// eventTime is the latest of its times: programs set different ones.
func eventTime(e corev1.Event) time.Time {
	moment := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.LastTimestamp.Time} {
		if t.After(moment) {
			moment = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(moment) {
		moment = e.Series.LastObservedTime.Time
	}
	return moment
}
