package status

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// The containers of a pod run in a sandbox: its control group, its network. When the
// container runtime refuses one, as with a RuntimeClass whose handler the node does not
// know, the pod's status says ContainerCreating for ever. Only an event tells why.

// sandboxFailed is the kubelet's reason for that event.
const sandboxFailed = "FailedCreatePodSandBox"

// SandboxFailures selects the events that are looked at, in the API server: in a healthy
// cluster there are none.
func SandboxFailures() fields.Selector {
	return fields.SelectorFromSet(fields.Set{
		"regarding.kind": "Pod", "type": corev1.EventTypeWarning, "reason": sandboxFailed,
	})
}

// SandboxMade reports whether the sandbox of a pod exists: what failed before is out
// of date.
func SandboxMade(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
}

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
