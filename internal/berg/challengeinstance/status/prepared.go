package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

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

// ToNotify returns the pods of an instance that took over a prepared one, and do not know their owner or wait for the flag. Any
// change of their metadata makes the kubelet look for the flag. again is the time until it is to look again, zero for never.
func ToNotify(o Observed, now time.Time) (pods []*corev1.Pod, again time.Duration) {
	if o.Instance.Status.PreparedFrom == "" || o.Pinned == nil {
		return nil, 0
	}
	for _, c := range o.Pinned.Containers {
		live, _ := ContainerPods(o.Pods, c.Hostname)
		for _, p := range live {
			waits := flagIsNew(o, now) && podAwaitsFlag(p)
			if waits {
				again = flagInterval
			}
			if waits || p.Labels[bergv1.LabelOwnerID] != o.Instance.Spec.OwnerID {
				pods = append(pods, p)
			}
		}
	}
	return pods, again
}
