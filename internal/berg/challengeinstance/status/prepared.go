package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// lateDelay is when the kubelet looks for a late flag once more: at the first time it may not have known of the flag, and by itself
// it looks after more than a minute.
const lateDelay = 2 * time.Second

// ToNotify returns the pods of an instance that took over a prepared one, and do not know their owner or may not have their flag.
// Any change of their metadata makes the kubelet look for the flag. delay is the time until it is to look again, zero for never.
// When a pod was notified is in its annotation, so a restart does not notify it more often.
func ToNotify(o Observed, now time.Time) (pods []*corev1.Pod, delay time.Duration) {
	if o.Instance.Status.PreparedFrom == "" || o.Pinned == nil {
		return nil, 0
	}
	for _, c := range o.Pinned.Containers {
		live, _ := ContainerPods(o.Pods, c.Hostname)
		for _, p := range live {
			due := notifiedAgain(o, c, p, now)
			isDue := !due.IsZero() && !now.Before(due)
			if isDue || p.Labels[bergv1.LabelOwnerID] != o.Instance.Spec.OwnerID {
				pods = append(pods, p)
			}
			switch {
			case isDue: // the cache will show when it was notified
				delay = Sooner(delay, flagInterval)
			case !due.IsZero():
				delay = Sooner(delay, due.Sub(now))
			}
		}
	}
	return pods, delay
}

// notifiedAgain returns when a pod that knows its owner is notified again, zero for never.
func notifiedAgain(o Observed, c bergv1.Container, p *corev1.Pod, now time.Time) time.Time {
	if c.DynamicFlag == nil || !flagIsNew(o, now) {
		return time.Time{}
	}
	last, err := time.Parse(time.RFC3339Nano, p.Annotations[bergv1.AnnotationFlagAt])
	if second := o.Instance.Status.StartedAt.Add(lateDelay); c.DynamicFlag.Late == bergv1.LateFile {
		if err == nil && !last.Before(second) {
			return time.Time{}
		}
		return second
	}
	if !podAwaitsFlag(p) {
		return time.Time{}
	}
	return last.Add(flagInterval)
}
