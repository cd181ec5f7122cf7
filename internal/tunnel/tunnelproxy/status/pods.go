package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
)

// Ended returns why the pod of a proxy no longer runs, "" while it may.
func Ended(proxy string, pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil {
			text := ExitText(proxy, t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
				text += " (" + t.Reason + ")"
			}
			if last := lastLines(t.Message); last != "" {
				text += "; its last output: " + last
			}
			return text
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
		return strings.TrimRight(fmt.Sprintf("the pod of %s has ended: %s %s", proxy, pod.Status.Reason, pod.Status.Message), " :")
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("the pod of %s is being deleted", proxy)
	}
	return ""
}

// ExitText explains the exit code of a proxy.
func ExitText(proxy string, code int32) string {
	switch code {
	case 0:
		return fmt.Sprintf("%s has ended with exit code 0: it was asked to end, or the other proxy has ended", proxy)
	case 3:
		return fmt.Sprintf("%s has ended with exit code 3: it lost the connection to the other proxy", proxy)
	case 4:
		return fmt.Sprintf("%s has ended with exit code 4: it could not listen, or could not reach the client proxy", proxy)
	default:
		return fmt.Sprintf("%s has ended with exit code %d", proxy, code)
	}
}

// The limits for lines that a status quotes from the log of a container that has ended.
const maxLines, maxLineBytes = 2, 512

// lastLines returns the last lines of a container's termination message. The log is deleted with the pod.
func lastLines(text string) string {
	var last []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			last = append(last, line)
		}
	}
	last = last[max(0, len(last)-maxLines):]
	return conditions.Shorten(strings.ToValidUTF8(strings.Join(last, " | "), "?"), maxLineBytes)
}

// Waiting returns why the pod of a proxy is not ready yet, "" if it does not say.
func Waiting(proxy string, pod *corev1.Pod) string {
	if reason := podstate.Starting(pod); reason != "" {
		return fmt.Sprintf("%s cannot start: %s", proxy, reason)
	}
	if reason := podstate.Scheduling(pod); reason != "" {
		return fmt.Sprintf("%s cannot be scheduled: %s", proxy, reason)
	}
	return ""
}

// containerID returns the ID of the client proxy's container, and the pod's if the runtime reports none.
func containerID(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == manifests.ClientContainer && s.ContainerID != "" {
			return s.ContainerID
		}
	}
	return "pod://" + string(pod.UID)
}
