package status

import (
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
)

func afterNoon(n float64) time.Time { return noon.Add(time.Duration(n * float64(time.Second))) }

// nodeSays is a pod of a container as far as its node reports it: a time for each stage, in
// seconds after noon, negative for what has not happened.
func nodeSays(container string, scheduled, sandbox, initial, latest, ready float64) corev1.Pod {
	p := pod(container, ready >= 0)
	p.Status.Conditions = nil
	for kind, at := range map[corev1.PodConditionType]float64{corev1.PodScheduled: scheduled, corev1.PodReadyToStartContainers: sandbox, corev1.PodReady: ready} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse}
		if at >= 0 {
			c.Status, c.LastTransitionTime = corev1.ConditionTrue, metav1.Time{Time: afterNoon(at)}
		}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	s := corev1.ContainerStatus{Name: container, Ready: ready >= 0, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}
	if latest >= 0 {
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: afterNoon(latest)}}}
	}
	if initial >= 0 && initial != latest {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{StartedAt: metav1.Time{Time: afterNoon(initial)}, Reason: "Error", ExitCode: 1}
		s.RestartCount = 1
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	return p
}

// ends are the times of a start in seconds after noon, negative for what is not told.
func ends(s *bergv1.StartTimes) [7]float64 {
	var all [7]float64
	for n, stage := range view.StageFields {
		all[n] = -1
		if s == nil {
			continue
		}
		if at := *stage.End(s); at != nil {
			all[n] = at.Sub(noon).Seconds()
		}
	}
	return all
}

// inTwo makes an instance of two containers of an outcome.
func inTwo(out Outcome) Outcome {
	pinned := manifests.Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i"}, {Hostname: "db", Image: "i"}}}
	out.Pinned = &pinned
	return out
}

func wroteAt(out Outcome, place, objects float64) Outcome {
	out.Written = Written{Namespace: afterNoon(place), Objects: afterNoon(objects)}
	return out
}

func TestStartTimes(t *testing.T) {
	nothing := -1.0
	for name, tc := range map[string]struct {
		out  Outcome
		want [7]float64
	}{
		"objects written": {wroteAt(startingWith(nil), .1, .3), [7]float64{.1, .3, -1, -1, -1, -1, -1}},
		"stopped after the namespace": {
			func() Outcome {
				o := wroteAt(startingWith(BeingBuilt), .1, 0)
				o.Written.Objects = time.Time{}
				return o
			}(),
			[7]float64{.1, -1, -1, -1, -1, -1, -1},
		},
		"waits for a node":      {wroteAt(startingWith(nil, nodeSays("web", -1, -1, -1, -1, -1)), .1, .3), [7]float64{.1, .3, -1, -1, -1, -1, -1}},
		"pulls its image":       {wroteAt(startingWith(nil, nodeSays("web", 1, 2, -1, -1, -1)), .1, .3), [7]float64{.1, .3, 1, 2, -1, -1, -1}},
		"runs, not ready":       {wroteAt(startingWith(nil, nodeSays("web", 1, 2, 9, 9, -1)), .1, .3), [7]float64{.1, .3, 1, 2, 9, 9, -1}},
		"ready":                 {wroteAt(startingWith(nil, nodeSays("web", 1, 2, 9, 9, 10)), .1, .3), [7]float64{.1, .3, 1, 2, 9, 9, 10}},
		"ready at the second":   {wroteAt(startingWith(nil, nodeSays("web", 1, 2, 9, 12, 13)), .1, .3), [7]float64{.1, .3, 1, 2, 9, 12, 13}},
		"a node with few words": {wroteAt(startingWith(nil, nodeSays("web", 1, nothing, 9, 9, 10)), .1, .3), [7]float64{.1, .3, 1, -1, 9, 9, 10}},
		"in whole seconds":      {wroteAt(startingWith(nil, nodeSays("web", 0, 0, 0, 0, 1)), .1, .3), [7]float64{.1, .3, .3, .3, .3, .3, 1}},
		"a clock that is ahead": {wroteAt(startingWith(nil, nodeSays("web", 99, 99, 99, 99, 99)), .1, .3), [7]float64{.1, .3, 60, 60, 60, 60, 60}},
		"the last pod counts": {
			wroteAt(inTwo(startingWith(nil, nodeSays("web", 1, 2, 9, 9, 10), nodeSays("db", 3, 4, 5, 5, 30))), .1, .3),
			[7]float64{.1, .3, 3, 4, 9, 9, 30},
		},
		"one pod has no node": {
			wroteAt(inTwo(startingWith(nil, nodeSays("web", 1, 2, 9, 9, 10), nodeSays("db", -1, -1, -1, -1, -1))), .1, .3),
			[7]float64{.1, .3, -1, -1, -1, -1, -1},
		},
		"one pod is missing": {wroteAt(inTwo(startingWith(nil, nodeSays("web", 1, 2, 9, 9, 10))), .1, .3), [7]float64{.1, .3, -1, -1, -1, -1, -1}},
		"the operator was killed in between": {
			func() Outcome {
				o := wroteAt(startingWith(nil, nodeSays("web", 3, 4, 5, 5, 6)), 20, 21)
				o.Namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: afterNoon(1)}}}
				manifests.OwnerFor(o.Instance).SetOn(o.Namespace)
				o.Namespace.UID, o.Instance.Status.NamespaceUID = "created", "created"
				o.Deployments = map[string]*appsv1.Deployment{"web": {ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: afterNoon(2)}}}}
				return o
			}(),
			[7]float64{1, 2, 3, 4, 5, 5, 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			compute(tc.out, config.Challenge{Timeout: time.Hour}, afterNoon(60))
			if got := ends(tc.out.Instance.Status.Start); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTimesCauseNoWriteOfTheirOwn(t *testing.T) {
	cfg := config.Challenge{Timeout: time.Hour}
	out := wroteAt(startingWith(nil, nodeSays("web", -1, -1, -1, -1, -1)), .1, .3)
	out.Pinned.Containers[0].ReadinessProbe = &corev1.Probe{}
	compute(out, cfg, afterNoon(1))
	before := asJSON(t, out.Instance.Status)
	out.Pods = []corev1.Pod{nodeSays("web", 1, 2, 3, 3, -1)}
	compute(out, cfg, afterNoon(5))
	if got := asJSON(t, out.Instance.Status); got != before {
		t.Errorf("that a container runs is written alone: %s\nwas %s", got, before)
	}
	out.Pods = []corev1.Pod{nodeSays("web", 1, 2, 3, 3, 6)}
	compute(out, cfg, afterNoon(7))
	want := [7]float64{.1, .3, 1, 2, 3, 3, 6}
	if got := ends(out.Instance.Status.Start); got != want {
		t.Errorf("Running it says %v, want %v", got, want)
	}
	ready := asJSON(t, out.Instance.Status.Start)
	out.Pods = []corev1.Pod{nodeSays("web", 50, 51, 52, 52, -1)}
	compute(out, cfg, afterNoon(60))
	if got := asJSON(t, out.Instance.Status.Start); got != ready {
		t.Errorf("a pod that replaces another one changes the start: %s, was %s", got, ready)
	}
}

// In every order of reports from nodes: a recorded time stays, one attempt follows another,
// and no stage ends before the previous one.
func TestStartTimesNeverDecrease(t *testing.T) {
	cfg := config.Challenge{Timeout: time.Hour}
	for seed := range uint64(500) {
		dice := rand.New(rand.NewPCG(seed, 7))
		at := func() float64 { return float64(dice.IntN(80)) - 20 }
		out := inTwo(startingWith(nil))
		var before [7]float64
		for n := range before {
			before[n] = -1
		}
		for look := range 12 {
			out.Written = Written{}
			if dice.IntN(3) > 0 {
				out = wroteAt(out, at(), at())
			}
			out.Problem = nil
			if dice.IntN(4) == 0 {
				out.Problem = BeingBuilt
			}
			out.Pods = nil
			for _, c := range []string{"web", "db"} {
				if dice.IntN(5) > 0 {
					out.Pods = append(out.Pods, nodeSays(c, at(), at(), at(), at(), at()))
				}
			}
			wasReadyAt := out.Instance.Status.ReadyAt
			compute(out, cfg, afterNoon(float64(look*5)))
			got := ends(out.Instance.Status.Start)
			last := -1.0
			for n, end := range got {
				switch {
				case end < 0 && before[n] >= 0, end >= 0 && end < last:
					t.Fatalf("seed %d: %v after %v", seed, got, before)
				case before[n] >= 0 && end != before[n] && (view.StageFields[n].Name != view.StageRestart || end < before[n] || wasReadyAt != nil):
					t.Fatalf("seed %d: %s went from %v to %v", seed, view.StageFields[n].Name, before[n], end)
				}
				if end >= 0 {
					last = end
				}
			}
			before = got
		}
	}
}

func TestAStartAtTheEpochIsUnknown(t *testing.T) {
	end := metav1.Time{Time: afterNoon(4)}
	for name, start := range map[string]metav1.Time{"none": {}, "epoch": {Time: time.Unix(0, 0)}} {
		s := TrimContainer(corev1.ContainerStatus{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", StartedAt: start, FinishedAt: end}}})
		if initial, latest := containerStarts(s); !initial.Equal(end.Time) || !latest.IsZero() {
			t.Errorf("%s: %s, %s", name, initial, latest)
		}
	}
}

func TestStagesOfAStartAreCountedOnce(t *testing.T) {
	out := wroteAt(startingWith(nil, nodeSays("web", 1, -1, 9, 9, 10)), .1, .3)
	compute(out, config.Challenge{Timeout: time.Hour}, afterNoon(11))
	if n := len(view.Stages(out.Instance)); n != 6 {
		t.Errorf("%d times, want one for each stage that is known", n)
	}
	if n := len(view.Stages(testInstance(started))); n != 0 {
		t.Errorf("%d times of an instance that was started by an operator without times", n)
	}
}
