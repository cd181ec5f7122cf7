package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// ToNotify returns the pods of an instance that took over a prepared one, and do not know their owner or wait for the flag. Any
// change of their metadata makes the kubelet look for the flag. delay is the time until it is to look again, zero for never.
func ToNotify(o Observed, now time.Time) (pods []*corev1.Pod, delay time.Duration) {
	if o.Instance.Status.PreparedFrom == "" || o.Pinned == nil {
		return nil, 0
	}
	for _, c := range o.Pinned.Containers {
		live, _ := ContainerPods(o.Pods, c.Hostname)
		for _, p := range live {
			waits := flagIsNew(o, now) && podAwaitsFlag(p)
			if waits {
				delay = flagInterval
			}
			if waits || p.Labels[bergv1.LabelOwnerID] != o.Instance.Spec.OwnerID {
				pods = append(pods, p)
			}
		}
	}
	return pods, delay
}
