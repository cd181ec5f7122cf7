package status

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// The containers of a pod run in a sandbox: its control group and its network. If the
// container runtime cannot create one, as with a RuntimeClass whose handler the node does not
// know, the status of the pod stays at ContainerCreating. Only an event says why.

// sandboxFailed is the reason of that event of the kubelet.
const sandboxFailed = "FailedCreatePodSandBox"

// SandboxFailures selects these events in the API server. A healthy cluster has none.
func SandboxFailures() fields.Selector {
	return fields.SelectorFromSet(fields.Set{
		"regarding.kind": "Pod", "type": corev1.EventTypeWarning, "reason": sandboxFailed,
	})
}

// SandboxMade reports whether the sandbox of a pod exists: earlier failures are out of date.
func SandboxMade(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

// LatestFailures returns the newest message about each pod, by the UID of the pod. Events of one time are ordered by name,
// so that the status does not alternate between them.
func LatestFailures(events []eventsv1.Event) map[types.UID]string {
	slices.SortFunc(events, func(a, b eventsv1.Event) int {
		if order := a.DeprecatedLastTimestamp.Compare(b.DeprecatedLastTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	failures := map[types.UID]string{}
	for _, e := range events {
		failures[e.Regarding.UID] = e.Note
	}
	return failures
}
