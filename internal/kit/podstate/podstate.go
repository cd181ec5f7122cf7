// Package podstate interprets the status that kubelet and scheduler write for a pod.
package podstate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Passes reports whether a container that waits for this reason needs no action: every start has it.
func Passes(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

// Stuck says why a container waits, nil if it does not, or if that passes by itself.
func Stuck(s corev1.ContainerStatus) *corev1.ContainerStateWaiting {
	if w := s.State.Waiting; w != nil && !Passes(w.Reason) {
		return w
	}
	return nil
}

// Ready reports whether a pod has the condition Ready.
func Ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Starting says why a container of a pod does not start, "" if that passes by itself.
func Starting(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if w := Stuck(s); w != nil {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return ""
}

// Scheduling says why a pod has no node, "" if it has one or nothing is known.
func Scheduling(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}
