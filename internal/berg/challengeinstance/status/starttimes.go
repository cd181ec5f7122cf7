package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// Written is when a pass had written objects of an instance; zero while it had not.
type Written struct {
	Namespace, Objects time.Time
}

// stage is one of a start: its label, and where its end stands.
type stage struct {
	name string
	at   func(*bergv1.StartTimes) **metav1.MicroTime
	// moves: a later end replaces an earlier one until the instance is ready.
	moves bool
}

// stages are in their order.
var stages = []stage{
	{name: "namespace", at: func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.NamespaceCreatedAt }},
	{name: "objects", at: func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ObjectsWrittenAt }},
	{name: "schedule", at: func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ScheduledAt }},
	{name: "sandbox", at: func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.SandboxesCreatedAt }},
	{name: "image", at: func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ImagesPulledAt }},
	{name: "restart", at: func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.ContainersStartedAt }, moves: true},
	{name: "ready", at: func(s *bergv1.StartTimes) **metav1.MicroTime { return &s.PodsReadyAt }},
}

// startTimes returns when the stages of a start were over, as far as they are: those that
// were told before, and what is new. Times of nodes are whole seconds of other clocks: none
// is before the stage above it, nor in the future.
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
	for i, s := range stages {
		if *s.at(times) != nil {
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
	earliest := Begun(instance)
	for i, s := range stages {
		field := s.at(times)
		known := *field
		switch t := over[i]; {
		case t.IsZero(), known != nil && !s.moves, known == nil && i < reached:
			// Not known, known already, or so late that a later stage has its time.
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

// stagesSeen are when a pass saw that the stages were over, zero for those that were not.
func stagesSeen(out Outcome) []time.Time {
	over := make([]time.Time, 0, len(stages))
	over = append(over, namespaceAt(out), objectsAt(out))
	pods := allPods(out.Observed)
	if out.Instance.Status.ReadyAt == nil {
		pods[len(pods)-1] = time.Time{} // what else is missing may take longer than a pod is well
	}
	return append(over, pods[:]...)
}

// namespaceAt: one that was there before the pass is as old as it says. A status that could
// not be written makes no stage longer.
func namespaceAt(out Outcome) time.Time {
	if ns := out.Namespace; ns != nil && manifests.OwnerOf(out.Instance).Owns(ns) {
		return ns.CreationTimestamp.Time
	}
	return out.Written.Namespace
}

// objectsAt is that of the Deployments, which are the last to be written.
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
		if at := d.CreationTimestamp.Time; at.After(last) {
			last = at
		}
	}
	return last
}

// podTimes are the ends of the stages that pods tell of: schedule, sandbox, image, restart
// and ready.
type podTimes [5]time.Time

// allPods are the times of that pod which was the last, zero where one of them, or of a
// container's pods, has not come so far.
func allPods(o Observed) podTimes {
	var all podTimes
	if o.Pinned == nil {
		return all
	}
	for n, c := range o.Pinned.Containers {
		live, _ := PodsOf(o.Pods, c.Hostname)
		if len(live) == 0 {
			return podTimes{}
		}
		for i, at := range timesOf(live[0]) {
			all[i] = lastOf(n, all[i], at)
		}
	}
	return all
}

// lastOf adds the n-th of some times: it returns the latest, zero if one is not known.
func lastOf(n int, latest, t time.Time) time.Time {
	if n > 0 && (latest.IsZero() || t.IsZero()) {
		return time.Time{}
	}
	if t.After(latest) {
		return t
	}
	return latest
}

func timesOf(p *corev1.Pod) podTimes {
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
		initial, latest := startsOf(s)
		times[2], times[3] = lastOf(n, times[2], initial), lastOf(n, times[3], latest)
	}
	return times
}

// startsOf are the first start of a container that its status tells of, and that of the
// attempt that runs.
func startsOf(s corev1.ContainerStatus) (initial, latest time.Time) {
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

// attempted is when an attempt was made that has ended. Of one that the runtime could not
// start it says the beginning of time, and when it gave up.
func attempted(t *corev1.ContainerStateTerminated) metav1.Time {
	if t.StartedAt.Unix() <= 0 {
		return t.FinishedAt
	}
	return t.StartedAt
}

// StageTime is how long one stage of a start took.
type StageTime struct {
	Name string
	Took time.Duration
}

// StageTimes are those of the stages of a start that is over.
func StageTimes(instance *bergv1.ChallengeInstance) []StageTime {
	times := instance.Status.Start
	if times == nil {
		return nil
	}
	var all []StageTime
	before := Begun(instance)
	for _, s := range stages {
		if at := *s.at(times); at != nil {
			all = append(all, StageTime{s.name, max(0, at.Sub(before))})
			before = at.Time
		}
	}
	return all
}
