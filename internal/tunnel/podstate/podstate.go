// Package podstate interprets the status that kubelet and scheduler write for a pod.
package podstate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// transient are the reasons of a waiting container that are part of every start.
var transient = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

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
		if w := s.State.Waiting; w != nil && !transient[w.Reason] {
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
