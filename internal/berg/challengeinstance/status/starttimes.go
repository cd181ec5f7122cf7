package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Written is when a reconciliation had written objects of an instance; zero if it has not.
type Written struct {
	Namespace, Objects time.Time
	// NamespaceUID is the UID of the written namespace; empty if it was not written.
	NamespaceUID types.UID
}

// startTimes returns the known ends of the stages of a start: those in the status, and new
// ones. Times of nodes are whole seconds of other clocks: none is set before the previous
// stage or in the future. A time that is in the status stays, except that of a restart.
func startTimes(out Outcome, now time.Time) *bergv1.StartTimes {
	instance := out.Instance
	if instance.Status.InstanceID == "" {
		return nil
	}
	times := &bergv1.StartTimes{}
	if s := instance.Status.Start; s != nil {
		times = s.DeepCopy()
	}
	reached := -1
	for i, s := range view.StageFields {
		if *s.End(times) != nil {
			reached = i
		}
	}
	latest := now
	for _, t := range []time.Time{out.Written.Namespace, out.Written.Objects} {
		if t.After(latest) {
			latest = t
		}
	}
	over := stagesSeen(out)
	earliest := view.StartedAt(instance)
	for i, s := range view.StageFields {
		field := s.End(times)
		known := *field
		switch t := over[i]; {
		case t.IsZero(), known != nil && s.Name != view.StageRestart, known == nil && i < reached:
			// Unknown, already known, or so late that a later stage has its time.
		default:
			t = clamp(t, earliest, latest).Truncate(time.Millisecond)
			if known == nil || t.After(known.Time) {
				*field = &metav1.MicroTime{Time: t}
			}
		}
		if known = *field; known != nil && known.After(earliest) {
			earliest = known.Time
		}
	}
	if *times == (bergv1.StartTimes{}) {
		return nil
	}
	return times
}

func clamp(t, earliest, latest time.Time) time.Time {
	if t.After(latest) {
		t = latest
	}
	if t.Before(earliest) {
		t = earliest
	}
	return t
}

// stagesSeen returns the observed ends of the stages, zero for stages that have not ended.
func stagesSeen(out Outcome) []time.Time {
	over := make([]time.Time, 0, len(view.StageFields))
	over = append(over, namespaceAt(out), objectsAt(out))
	pods := allPods(out.Observed)
	if out.Instance.Status.ReadyAt == nil {
		pods[len(pods)-1] = time.Time{} // another pod may become ready later than this one stays ready
	}
	return append(over, pods[:]...)
}

// namespaceAt: an existing namespace has its creation time. A status that could not be written
// thus lengthens no stage.
func namespaceAt(out Outcome) time.Time {
	if ns := out.Namespace; ns != nil && manifests.NamespaceOwner(out.Instance).Owns(ns) {
		return ns.CreationTimestamp.Time
	}
	return out.Written.Namespace
}

// objectsAt is the time of the Deployments, which are written last.
func objectsAt(out Outcome) time.Time {
	if out.Problem != nil || out.Pinned == nil {
		return time.Time{}
	}
	var last time.Time
	for _, c := range out.Pinned.Containers {
		d := out.Deployments[c.Hostname]
		if d == nil {
			return out.Written.Objects
		}
		if created := d.CreationTimestamp.Time; created.After(last) {
			last = created
		}
	}
	return last
}

// podTimes are the ends of the stages that pods show: schedule, sandbox, image, restart and
// ready.
type podTimes [5]time.Time

// allPods are the latest times of all pods, zero for a stage that a pod, or a container
// without a pod, has not reached.
func allPods(o Observed) podTimes {
	var all podTimes
	if o.Pinned == nil {
		return all
	}
	for n, c := range o.Pinned.Containers {
		live, _ := ContainerPods(o.Pods, c.Hostname)
		if len(live) == 0 {
			return podTimes{}
		}
		times := readPodTimes(live[0])
		if stageTime := o.Instance.Status.ReadyAt; stageTime != nil && times[len(times)-1].IsZero() && opened(o, c, live[0]) {
			times[len(times)-1] = stageTime.Time
		}
		for i, stageTime := range times {
			all[i] = addLatest(n, all[i], stageTime)
		}
	}
	return all
}

// addLatest adds the n-th of several times: it returns the latest, zero if one is unknown.
func addLatest(n int, latest, t time.Time) time.Time {
	if n > 0 && (latest.IsZero() || t.IsZero()) {
		return time.Time{}
	}
	if t.After(latest) {
		return t
	}
	return latest
}

// readPodTimes reads the ends of the stages from a pod. A condition has one time only: while it is not True, the end of its
// stage is unknown.
func readPodTimes(p *corev1.Pod) podTimes {
	var times podTimes
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case corev1.PodScheduled:
			times[0] = c.LastTransitionTime.Time
		case corev1.PodReadyToStartContainers:
			times[1] = c.LastTransitionTime.Time
		case corev1.PodReady:
			times[4] = c.LastTransitionTime.Time
		}
	}
	for n, s := range p.Status.ContainerStatuses {
		initial, latest := containerStarts(s)
		times[2], times[3] = addLatest(n, times[2], initial), addLatest(n, times[3], latest)
	}
	return times
}

// containerStarts returns the first known start of a container, and the start of the running attempt.
func containerStarts(s corev1.ContainerStatus) (initial, latest time.Time) {
	if r := s.State.Running; r != nil {
		initial, latest = r.StartedAt.Time, r.StartedAt.Time
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t != nil {
			initial = attempted(t).Time
		}
	}
	return initial, latest
}

// attempted is when an ended attempt started. If the runtime could not start it, the status
// has the epoch, and the time at which it gave up.
func attempted(t *corev1.ContainerStateTerminated) metav1.Time {
	if t.StartedAt.Unix() <= 0 {
		return t.FinishedAt
	}
	return t.StartedAt
}
