package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// startingWith is the outcome of a reconciliation over an instance that is starting.
func startingWith(p *outcome.Problem, pods ...corev1.Pod) Outcome {
	pinned := webOnly()
	return Outcome{
		Observed: Observed{Candidate: Candidate{Instance: testInstance(started), Challenge: challengeOf(pinned), Pinned: &pinned}, Pods: pods},
		Problem:  p,
	}
}

// attempt is a pod whose container was restarted so often, and runs, has ended or waits.
func attempt(restarts int32, state corev1.ContainerState) corev1.Pod {
	p := pod("web", false)
	last := &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3}
	if restarts == 0 {
		last = nil
	}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", RestartCount: restarts, State: state, LastTerminationState: corev1.ContainerState{Terminated: last}}}
	return p
}

var (
	runs    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	hasDied = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3}}
)

// backsOff is the state of a container that waits so long for its next attempt.
func backsOff(wait string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: crashLoopBackOff, Message: "back-off " + wait + " restarting failed container=web"}}
}

func TestEveryCauseHasItsReasons(t *testing.T) {
	problem := func(step, reason string) *outcome.Problem {
		return &outcome.Problem{Condition: step, Reason: reason, Class: outcome.Waiting, Message: "why"}
	}
	unschedulable := pod("web", false)
	unschedulable.Status.Conditions = append(unschedulable.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable})
	known := map[bergv1.Cause]bool{}
	for name, tc := range map[string]struct {
		out  Outcome
		want bergv1.Cause
	}{
		"runs":                          {startingWith(nil, pod("web", true)), ""},
		"no pod yet":                    {startingWith(nil), bergv1.CauseNotReadyYet},
		"not ready yet":                 {startingWith(nil, pod("web", false)), bergv1.CauseNotReadyYet},
		"being built":                   {startingWith(BeingBuilt), bergv1.CauseNotReadyYet},
		"the API server is silent":      {startingWith(problem(bergv1.ConditionDeploymentsCreated, bergv1.ReasonWriteFailed)), bergv1.CauseNotReadyYet},
		"another one is before":         {startingWith(problem(bergv1.ConditionNamespaceCreated, bergv1.ReasonOwnerBusy)), bergv1.CauseOwnerBusy},
		"frozen":                        {startingWith(problem(bergv1.ConditionChallengeFound, bergv1.ReasonFrozen)), bergv1.CauseFrozen},
		"queued":                        {startingWith(problem("Admitted", "Queued")), bergv1.CauseQueued},
		"no Challenge":                  {startingWith(problem(bergv1.ConditionChallengeFound, bergv1.ReasonChallengeMissing)), bergv1.CauseInvalid},
		"no flag":                       {startingWith(problem(bergv1.ConditionFlagValidation, bergv1.ReasonFlagMissing)), bergv1.CauseInvalid},
		"a Service is refused":          {startingWith(problem(bergv1.ConditionServicesCreated, bergv1.ReasonRefused)), bergv1.CauseRefused},
		"the namespace is another's":    {startingWith(problem(bergv1.ConditionNamespaceCreated, bergv1.ReasonNamespaceConflict)), bergv1.CauseRefused},
		"no Cilium":                     {startingWith(problem(bergv1.ConditionNetworkPolicyCreated, bergv1.ReasonAPINotInstalled)), bergv1.CauseRefused},
		"no node port":                  {startingWith(problem(bergv1.ConditionServicesCreated, bergv1.ReasonWriteFailed)), bergv1.CauseAddressPending},
		"no Gateway API":                {startingWith(problem(bergv1.ConditionRoutesCreated, bergv1.ReasonAPINotInstalled)), bergv1.CauseAddressPending},
		"no room":                       {startingWith(nil, unschedulable), bergv1.CauseNoCapacity},
		"no room on its node":           {startingWith(nil, endedPod("web", corev1.PodFailed, "OutOfcpu")), bergv1.CauseNoCapacity},
		"evicted":                       {startingWith(nil, endedPod("web", corev1.PodFailed, "Evicted")), bergv1.CauseNoCapacity},
		"no image":                      {startingWith(nil, waitingPod("web", "ErrImagePull")), bergv1.CauseImageUnavailable},
		"no image after a while":        {startingWith(nil, waitingPod("web", "ImagePullBackOff")), bergv1.CauseImageUnavailable},
		"crashes":                       {startingWith(nil, attempt(1, backsOff("10s"))), bergv1.CauseCrashing},
		"crashes, in its next attempt":  {startingWith(nil, attempt(2, runs)), bergv1.CauseCrashing},
		"crashes, and has just ended":   {startingWith(nil, attempt(2, hasDied)), bergv1.CauseCrashing},
		"has just ended":                {startingWith(nil, attempt(0, hasDied)), bergv1.CauseCrashing},
		"has ended once":                {startingWith(nil, attempt(1, runs)), bergv1.CauseCrashing},
		"the program is missing":        {startingWith(nil, waitingPod("web", "RunContainerError")), bergv1.CauseCrashing},
		"ended":                         {startingWith(nil, endedPod("web", corev1.PodSucceeded, "")), bergv1.CauseCrashing},
		"a pod is refused":              {refusing(startingWith(nil), "web"), bergv1.CauseRefused},
		"a node refuses":                {withoutSandbox(startingWith(nil, pod("web", false))), bergv1.CauseRefused},
		"an unknown reason":             {startingWith(nil, waitingPod("web", "Novelty")), bergv1.CauseNotReadyYet},
		"what stops it comes first":     {startingWith(problem(bergv1.ConditionServicesCreated, bergv1.ReasonRefused), waitingPod("web", "ErrImagePull")), bergv1.CauseRefused},
		"refused a repair while it ran": {running(startingWith(problem(bergv1.ConditionServicesCreated, bergv1.ReasonRefused))), ""},
		"crashes after it ran":          {running(startingWith(nil, attempt(3, backsOff("10s")))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			compute(tc.out, config.Challenge{Timeout: time.Hour}, noon)
			if got := tc.out.Instance.Status.Cause; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if (tc.out.Instance.Status.Cause == "") != (tc.out.Instance.Status.Phase == bergv1.PhaseRunning) {
				t.Errorf("%q in the phase %s", tc.out.Instance.Status.Cause, tc.out.Instance.Status.Phase)
			}
		})
		known[tc.want] = true
	}
	for _, c := range bergv1.Causes {
		if !known[c] {
			t.Errorf("nothing leads to %s", c)
		}
	}
}

// Without a probe a container is ready as soon as it runs, also if it ends half a second later.
func TestACrashLoopIsOverWhenTheContainerWasReadyForAWhile(t *testing.T) {
	readyAgain := func(restarts int32) corev1.Pod {
		p := attempt(restarts, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: noon}}})
		p.Status.ContainerStatuses[0].Ready = true
		p.Status.Conditions[0].Status = corev1.ConditionTrue
		return p
	}
	const said = "Container web: CrashLoopBackOff: last exit code 3 (Error)"
	for name, tc := range map[string]struct {
		pod    corev1.Pod
		after  time.Duration
		health string
		again  time.Duration
	}{
		"back-off":                         {attempt(2, backsOff("20s")), 0, said, 0},
		"ready for a moment":               {readyAgain(3), time.Second, said, settleTime - time.Second},
		"ready for a while":                {readyAgain(3), settleTime, "All pods are ready", 0},
		"ready after it was started twice": {readyAgain(1), time.Second, "All pods are ready", 0},
		"started by a clock that is ahead": {readyAgain(3), -time.Minute, said, settleTime + time.Minute},
	} {
		out := startingWith(nil, tc.pod)
		wasReady(out.Instance)
		now := noon.Add(tc.after)
		compute(out, config.Challenge{Timeout: time.Hour}, now)
		c := meta.FindStatusCondition(out.Instance.Status.Conditions, bergv1.ConditionHealthy)
		if c.Message != tc.health || UntilSettled(out.Observed, now) != tc.again {
			t.Errorf("%s: %s, again in %s", name, c.Message, UntilSettled(out.Observed, now))
		}
		// It does not become Running by such a moment either.
		out = startingWith(nil, tc.pod)
		compute(out, config.Challenge{Timeout: time.Hour}, now)
		if runs := out.Instance.Status.Phase == bergv1.PhaseRunning; runs != (tc.health != said) {
			t.Errorf("%s: the phase is %s", name, out.Instance.Status.Phase)
		}
	}
}

// running makes an instance one that ran, and what stops its pass something to try again.
func running(out Outcome) Outcome {
	wasReady(out.Instance)
	if out.Problem != nil {
		out.Problem.Class = outcome.Retry
	}
	return out
}

// The attempts of a crash loop are reported once: the status stays the same for every state
// that the kubelet reports in between, and no event of the pod triggers a reconciliation.
func TestACrashLoopIsReportedOnce(t *testing.T) {
	cfg := config.Challenge{Timeout: time.Hour, StartDeadline: time.Hour}
	loop := []corev1.Pod{
		attempt(0, hasDied), attempt(1, runs), attempt(1, hasDied), attempt(1, backsOff("10s")), attempt(2, runs), attempt(2, hasDied), attempt(2, backsOff("20s")),
		attempt(3, runs), attempt(3, hasDied), attempt(3, backsOff("40s")), attempt(4, runs),
	}
	known := startingWith(nil, loop[0])
	compute(known, cfg, noon)
	want := asJSON(t, known.Instance.Status)
	for n := 1; n < len(loop); n++ {
		out := startingWith(nil, loop[n])
		out.Instance = known.Instance.DeepCopy()
		compute(out, cfg, noon.Add(time.Duration(n)*time.Minute))
		if got := asJSON(t, out.Instance.Status); got != want {
			t.Errorf("step %d: %s\nwas %s", n, got, want)
		}
		if NewPodView(&loop[n-1]) != NewPodView(&loop[n]) {
			t.Errorf("step %d triggers a reconciliation", n)
		}
	}

	recovers := attempt(4, runs)
	recovers.Status.ContainerStatuses[0].Ready = true
	recovers.Status.Conditions = pod("web", true).Status.Conditions
	if NewPodView(&loop[len(loop)-1]) == NewPodView(&recovers) {
		t.Error("becoming ready triggers no reconciliation")
	}
	out := startingWith(nil, recovers)
	compute(out, cfg, noon)
	if s := out.Instance.Status; s.Cause != "" || s.Phase != bergv1.PhaseRunning {
		t.Errorf("ready at last, it is %s: %q", s.Phase, s.Cause)
	}
}
