package check

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const flagOfTests = "flag{check_abcdefghijklmnopqrstuvwxyz}"

// observedWith is a check whose instance has run since a minute after noon, and whose solver was
// started then.
func observedWith(modify ...func(*Observed)) Observed {
	o := Observed{Check: checkOf(func(c *bergv1.ChallengeCheck) {
		c.Status.Run = &bergv1.CheckRun{StartedAt: atNoon(0), ChallengeGeneration: 3, ChallengeUID: "u"}
	}), Challenge: challengeOf()}
	o.Instance = instance(o.Check, flagOfTests)
	o.Instance.UID = "instance"
	o.Instance.Status.Phase, o.Instance.Status.ReadyAt = bergv1.PhaseRunning, atPtr(time.Minute)
	o.Job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: atNoon(time.Minute), Annotations: map[string]string{bergv1.CheckAnnotationInstance: "instance"}}}
	for _, m := range modify {
		m(&o)
	}
	return o
}

// with gives the solver a pod whose container has a state.
func with(state corev1.ContainerState) func(*Observed) {
	return func(o *Observed) {
		o.Pods = []corev1.Pod{{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "sidecar"}, {Name: containerName, State: state}}}}}
	}
}

func podEnded(exit int32, reason, said string) func(*Observed) {
	return with(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exit, Reason: reason, Message: said, StartedAt: atNoon(time.Minute), FinishedAt: atNoon(70 * time.Second),
	}})
}

func starts(reason, message string) func(*Observed) {
	return func(o *Observed) {
		o.Job, o.Instance.Status.ReadyAt, o.Instance.Status.Phase = nil, nil, bergv1.PhaseStarting
		o.Instance.Status.Conditions = []metav1.Condition{
			{Type: bergv1.ConditionPodsReady, Status: metav1.ConditionFalse, Reason: reason, Message: message},
			{Type: bergv1.ConditionChallengeFound, Status: metav1.ConditionTrue, Reason: "Found", Message: "all is well"},
		}
	}
}

func TestAssess(t *testing.T) {
	refused := func(o *Observed) { o.PodRefused = "exceeded quota" }
	noJob := func(o *Observed) { o.Job = nil }
	noInstance := func(o *Observed) { o.Instance, o.Job = nil, nil }
	running := with(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: atNoon(time.Minute)}})
	pulling := with(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}})
	for name, tc := range map[string]struct {
		o    Observed
		now  time.Duration
		want string // the result, "broken off", or the stage
		says string
		left time.Duration
	}{
		"nothing is there yet": {observedWith(noInstance), time.Second, "Starting", "being created", 119 * time.Second},
		"nothing came of it":   {observedWith(noInstance), 2 * time.Minute, "NeverStarted", "within 2m0s", 0},
		"no operator ran":      {observedWith(noInstance), time.Hour, "broken off", "No operator", 0},
		"it starts":            {observedWith(starts("ImagePullBackOff", "no such image")), time.Minute, "Starting", "no such image", time.Minute},
		"it never started":     {observedWith(starts("ImagePullBackOff", "no such image")), 2 * time.Minute, "NeverStarted", "ImagePullBackOff: no such image", 0},
		"its probe fails":      {observedWith(starts("Starting", "Not ready: web"), func(o *Observed) { o.Unready = []string{"web"} }), 2 * time.Minute, "NeverStarted", "Not ready: web; container web runs, and its readiness probe fails", 0},
		"two probes fail":      {observedWith(starts("Starting", "Not ready: db, web"), func(o *Observed) { o.Unready = []string{"db", "web"} }), 2 * time.Minute, "NeverStarted", "containers db, web run, and their readiness probes fail", 0},
		"it failed":            {observedWith(starts("InvalidChallenge", "a typo"), func(o *Observed) { o.Instance.Status.Phase = bergv1.PhaseFailed }), time.Second, "NeverStarted", "InvalidChallenge: a typo", 0},
		"it is frozen":         {observedWith(starts("Frozen", "it is frozen")), time.Second, "broken off", "it is frozen", 0},
		"it is deleted":        {observedWith(func(o *Observed) { o.Instance.DeletionTimestamp = atPtr(0) }), time.Second, "broken off", "another client", 0},
		"it is gone":           {observedWith(func(o *Observed) { o.Instance = nil }), time.Second, "broken off", "another client", 0},
		"it is another one":    {observedWith(func(o *Observed) { o.Instance.UID = "another" }), time.Second, "broken off", "another client", 0},
		"players wait":         {observedWith(playersWait), time.Second, "broken off", "ChallengeInstance berg/alice waits for capacity, and players go first", 0},
		"it runs":              {observedWith(noJob), time.Hour, "Solving", "being started", 2 * time.Minute},
		"no pod yet":           {observedWith(), 2 * time.Minute, "Solving", "being created", podRetry},
		"no pod at all":        {observedWith(), 3 * time.Minute, "SolverNotStarted", "no event of its Job says why", 0},
		"its pod is refused":   {observedWith(refused), 2 * time.Minute, "Solving", "refuses the pod of the solver: exceeded quota", podRetry},
		"and at the end":       {observedWith(refused), 3 * time.Minute, "SolverNotStarted", "refuses the pod of the solver: exceeded quota", 0},
		"the pod was deleted": {observedWith(func(o *Observed) {
			o.Job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
		}), 2 * time.Minute, "broken off", "BackoffLimitExceeded", 0},
		"the node is drained": {observedWith(podEnded(143, "Error", ""), func(o *Observed) {
			o.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		}), 2 * time.Minute, "broken off", "evicted from its node", 0},
		"the solver's image":        {observedWith(pulling), 2 * time.Minute, "Solving", "no such image", time.Minute},
		"the solver's image, still": {observedWith(pulling), 3 * time.Minute, "SolverNotStarted", "ImagePullBackOff: no such image", 0},
		"the solver runs":           {observedWith(running), 2 * time.Minute, "Solving", "runs", time.Minute},
		"the solver is slow":        {observedWith(running), 3 * time.Minute, "TooSlow", "within 2m0s", 0},
		"the pod failed": {observedWith(pulling, func(o *Observed) {
			o.Pods[0].Status.Phase = corev1.PodFailed
			o.Pods[0].Status.Reason = "UnexpectedAdmissionError"
		}), 2 * time.Minute, "SolverCrashed", "UnexpectedAdmissionError", 0},
		"solved":                  {observedWith(podEnded(0, "Completed", "the flag is "+flagOfTests+"!\n")), 2 * time.Minute, "Solved", "found the flag", 0},
		"solved, though late":     {observedWith(podEnded(0, "Completed", flagOfTests)), time.Hour, "Solved", "found the flag", 0},
		"another flag":            {observedWith(podEnded(0, "Completed", "flag{no}")), 2 * time.Minute, "WrongFlag", "not the flag", 0},
		"part of the flag":        {observedWith(podEnded(0, "Completed", flagOfTests[:len(flagOfTests)-1])), 2 * time.Minute, "WrongFlag", "not the flag", 0},
		"no flag":                 {observedWith(podEnded(0, "Completed", " \n")), 2 * time.Minute, "WrongFlag", "FLAG_FILE", 0},
		"it crashed":              {observedWith(podEnded(2, "Error", "panic")), 2 * time.Minute, "SolverCrashed", "exit code 2", 0},
		"the flag, and a crash":   {observedWith(podEnded(2, "Error", flagOfTests)), 2 * time.Minute, "SolverCrashed", "exit code 2", 0},
		"no way":                  {observedWith(podEnded(69, "Error", "refused")), 2 * time.Minute, "Unreachable", "exit code 69", 0},
		"too large":               {observedWith(podEnded(137, "OOMKilled", "")), 2 * time.Minute, "SolverCrashed", "resourceLimits.memory", 0},
		"no such command":         {observedWith(podEnded(128, "StartError", "exec: no such file")), 2 * time.Minute, "SolverNotStarted", "no such file", 0},
		"a flag for all":          {observedWith(static, podEnded(0, "Completed", "flag{for_all}")), 2 * time.Minute, "Solved", "", 0},
		"the flag of before":      {observedWith(static, edited, podEnded(0, "Completed", "flag{before}")), 2 * time.Minute, "broken off", "changed during the check", 0},
		"a flag that was cleared": {observedWith(static, edited, noFlag, podEnded(0, "Completed", "anything")), 2 * time.Minute, "broken off", "changed during the check", 0},
		"a crash, and an edit":    {observedWith(static, edited, podEnded(2, "Error", "not flag{before}")), 2 * time.Minute, "broken off", "changed during the check", 0},
		"it was edited soon":      {observedWith(edited, noInstance), time.Second, "broken off", "changed during the check", 0},
		"it was made again":       {observedWith(func(o *Observed) { o.Challenge.UID = "v" }), time.Second, "broken off", "changed during the check", 0},
		"there never was a flag":  {observedWith(static, noFlag, podEnded(0, "Completed", "anything")), 2 * time.Minute, "broken off", "no longer has a flag", 0},
		"not the flag for all":    {observedWith(static, podEnded(0, "Completed", flagOfTests)), 2 * time.Minute, "WrongFlag", "", 0},
	} {
		v := assess(tc.o, noon.Add(tc.now))
		got, says := v.Stage, v.Message
		switch {
		case v.Result != nil:
			got, says = string(v.Result.Result), v.Result.Message
		case v.BrokenOff != "":
			got, says = "broken off", v.BrokenOff
		}
		if got != tc.want || !strings.Contains(says, tc.says) || v.Left != tc.left {
			t.Errorf("%s: %s (%s), %s left; want %s (%s), %s left", name, got, says, v.Left, tc.want, tc.says, tc.left)
		}
		if r := v.Result; r != nil && r.ExitCode != nil && (*r.StartSeconds != 60 || *r.SolveSeconds != 10) {
			t.Errorf("%s: %d seconds to start and %d to solve", name, *r.StartSeconds, *r.SolveSeconds)
		}
		if strings.Contains(says, flagOfTests) || v.Result != nil && strings.Contains(v.Result.Output, flagOfTests) {
			t.Errorf("%s: tells the flag", name)
		}
	}
}

// edited is a Challenge that was changed since the check began.
func edited(o *Observed) { o.Challenge.Generation++ }

func noFlag(o *Observed) { o.Challenge.Spec.Flag = "" }

func playersWait(o *Observed) {
	o.Players = players{Wait: true, Named: types.NamespacedName{Namespace: "berg", Name: "alice"}}
}

// static makes the Challenge one whose containers get no flag.
func static(o *Observed) {
	o.Challenge.Spec.Containers[0].DynamicFlag = nil
	o.Challenge.Spec.Flag = "flag{for_all}"
}

func TestOutput(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for name, tc := range map[string]struct{ text, want string }{
		"short":                        {" panic\n", "panic"},
		"a flag":                       {"got " + flagOfTests + " and more", "got <flag> and more"},
		"the flag of another player":   {"got CTF_24{his_own-1}, {} and func() { return }", "got <flag>, {} and func() { return }"},
		"no text":                      {"\xff\xfe", "�"},
		"cut, the first line is half":  {flagOfTests[9:] + strings.Repeat(".", cutMessage) + "\nthe end", "the end"},
		"cut, one line":                {strings.Repeat(".", cutMessage), ""},
		"long, whole characters of it": {"x\n" + long, strings.Repeat("é", maxOutput/2)},
	} {
		if got := output(tc.text, flagOfTests, ""); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestNewFlag(t *testing.T) {
	for _, tc := range []struct{ format, flagOfTests, want string }{
		{"", "", "flag{"},
		{"berg{...}", "other{x}", "berg{"},
		{"", "other{x}", "other{"},
		{"any text without a brace", "", "flag{"},
		{"a format with spaces {x}", "", "flag{"},
		{strings.Repeat("x", 65) + "{}", "", "flag{"},
		{"{}", "", "flag{"},
	} {
		challenge := challengeOf(func(c *bergv1.Challenge) { c.Spec.FlagFormat, c.Spec.Flag = tc.format, tc.flagOfTests })
		one, other := newFlag(challenge), newFlag(challenge)
		if one == other {
			t.Errorf("%q twice", one)
		}
		if !strings.HasPrefix(one, tc.want+"check_") || !strings.HasSuffix(one, "}") || len(one) < len(tc.want)+32 {
			t.Errorf("%q, %q: %q", tc.format, tc.flagOfTests, one)
		}
	}
}
