package status

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestRefusedPodsAreTriedAgainEveryMinute(t *testing.T) {
	stamp := func(ago time.Duration) string { return noon.Add(-ago).Format(time.RFC3339) }
	for name, tc := range map[string]struct {
		d     *appsv1.Deployment
		due   bool
		until time.Duration
	}{
		"not refused":              {deploymentWith(""), false, 0},
		"not refused any more":     {deploymentWith(stamp(time.Hour)), false, 0},
		"refused just now":         {deploymentWith("", failure(0, "no")), false, time.Minute},
		"refused for a while":      {deploymentWith("", failure(20*time.Second, "no")), false, 40 * time.Second},
		"refused for a minute":     {deploymentWith("", failure(time.Minute, "no")), true, time.Minute},
		"tried again a while ago":  {deploymentWith(stamp(50*time.Second), failure(time.Hour, "no")), false, 10 * time.Second},
		"tried again a minute ago": {deploymentWith(stamp(time.Minute), failure(time.Hour, "no")), true, time.Minute},
		"tried in an earlier case": {deploymentWith(stamp(time.Hour), failure(time.Second, "no")), false, 59 * time.Second},
		"what is no time":          {deploymentWith("soon", failure(time.Hour, "no")), true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			at := RetryAt(tc.d)
			if got := !at.IsZero() && !noon.Before(at); got != tc.due {
				t.Errorf("due: %v", got)
			}
			if got := UntilRetry(Observed{Deployments: map[string]*appsv1.Deployment{"web": tc.d, "db": {}}}, noon); got != tc.until {
				t.Errorf("again in %s, want %s", got, tc.until)
			}
		})
	}
}

// What fails by itself, and ends by itself, is not called refused.
func TestWhyPodsAreNotCreated(t *testing.T) {
	const account = `pods "web-" is forbidden: error looking up service account a/default: serviceaccount "default" not found`
	for name, tc := range map[string]struct {
		since         time.Duration
		message, want string
		helps         string
	}{
		"a new namespace":       {time.Second, account, "", ""},
		"no account controller": {2 * time.Minute, account, bergv1.ReasonWriteFailed, "controller manager"},
		"the API server":        {time.Second, "etcdserver: request timed out", bergv1.ReasonWriteFailed, "readyz"},
		"quota":                 {time.Second, "exceeded quota: q, requested: pods=1", bergv1.ReasonRefused, "kubectl get resourcequotas"},
		"OpenShift":             {time.Second, "unable to validate against any security context constraint: []", bergv1.ReasonRefused, "oc get scc"},
		"unknown":               {time.Second, "no", bergv1.ReasonRefused, "no"},
	} {
		if reason, message := ExplainRefusal(deploymentWith("", failure(tc.since, tc.message)), noon); reason != tc.want || !strings.Contains(message, tc.helps) {
			t.Errorf("%s: %q, %q", name, reason, message)
		}
	}
}

func failure(since time.Duration, message string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: message,
		LastTransitionTime: metav1.Time{Time: noon.Add(-since)},
	}
}

func deploymentWith(retried string, conditions ...appsv1.DeploymentCondition) *appsv1.Deployment {
	d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Conditions: conditions}}
	if retried != "" {
		d.Annotations = map[string]string{bergv1.AnnotationRetriedAt: retried}
	}
	return d
}

func TestLatestFailures(t *testing.T) {
	at := func(name string, second int, text string) eventsv1.Event {
		e := eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "challenge-a", Name: name}, Note: text}
		e.Regarding.UID = "pod"
		e.DeprecatedLastTimestamp.Time = noon.Add(time.Duration(second) * time.Second)
		TrimEvent(&e)
		return e
	}
	for name, events := range map[string][]eventsv1.Event{
		"by time":              {at("a", 2, "late"), at("b", 1, "early")},
		"by name, at one time": {at("b", 1, "late"), at("a", 1, "early")},
	} {
		if got := LatestFailures(events); len(got) != 1 || got["pod"] != "late" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAnEventHappenedWhenItWasSeenLast(t *testing.T) {
	second := func(n int) metav1.Time { return metav1.Time{Time: noon.Add(time.Duration(n) * time.Second)} }
	micro := func(n int) metav1.MicroTime { return metav1.MicroTime{Time: second(n).Time} }
	for name, tc := range map[string]struct {
		event eventsv1.Event
		want  int
	}{
		"of the kubelet":        {eventsv1.Event{DeprecatedFirstTimestamp: second(1), DeprecatedLastTimestamp: second(5)}, 5},
		"of the new kind":       {eventsv1.Event{EventTime: micro(3)}, 3},
		"of the new kind again": {eventsv1.Event{EventTime: micro(3), Series: &eventsv1.EventSeries{LastObservedTime: micro(9)}}, 9},
		"without a time":        {eventsv1.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: second(2)}}, 2},
	} {
		if got := happened(&tc.event); !got.Equal(second(tc.want).Time) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestForeignReasonsBecomeValid(t *testing.T) {
	for text, want := range map[string]string{
		"Evicted": "Evicted", "OutOfnvidia.com/gpu": "OutOfnvidiacomgpu", "OutOfephemeral-storage": "OutOfephemeralstorage",
		"": "Failed", "!?": "Failed", "lower": "Failed", "9": "Failed",
	} {
		if got := validReason(text, "Failed"); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// How a container ended long ago, containers of others that have done their work, and the restart of a node are no crashes.
func TestACrashIsOfTheProgramThatRuns(t *testing.T) {
	end := func(reason string, code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}}
	}
	since := func(up, unready time.Duration) corev1.Pod {
		p := attempt(1, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: noon.Add(-up)}}})
		p.Status.Conditions[0].LastTransitionTime = metav1.Time{Time: noon.Add(-unready)}
		return p
	}
	mesh := func(init bool, s corev1.ContainerStatus) corev1.Pod {
		p := attempt(0, runs)
		s.Name = "mesh"
		if init {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{s}
		} else {
			p.Status.ContainerStatuses[0].Ready = true
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
		return p
	}
	rebooted := attempt(1, runs)
	rebooted.Status.ContainerStatuses[0].LastTerminationState = end("Unknown", 255)
	const loop = "Container web: CrashLoopBackOff: last exit code 3 (Error)"
	const meshLoop = "Container web: mesh, which admission added to the pod: CrashLoopBackOff: last exit code "
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want string
	}{
		"unready since it ended":                  {since(time.Minute, time.Minute), loop},
		"unready since a second after it started": {since(time.Minute, 59*time.Second), loop},
		"it was ready for hours":                  {since(3*time.Hour, time.Minute), "Not ready: web"},
		"its node was restarted":                  {rebooted, "Not ready: web"},
		"an init container that is done":          {mesh(true, corev1.ContainerStatus{Ready: true, State: end("Completed", 0)}), "Not ready: web"},
		"one that was done before, once more": {
			mesh(true, corev1.ContainerStatus{RestartCount: 1, State: runs, LastTerminationState: end("Completed", 0)}), "Not ready: web",
		},
		"an init container that has failed":   {mesh(true, corev1.ContainerStatus{State: end("Error", 1)}), meshLoop + "1 (Error)"},
		"and is tried again":                  {mesh(true, corev1.ContainerStatus{RestartCount: 1, State: runs, LastTerminationState: end("Error", 1)}), meshLoop + "1 (Error)"},
		"and waits":                           {mesh(true, corev1.ContainerStatus{RestartCount: 1, State: backsOff("10s"), LastTerminationState: end("Error", 1)}), meshLoop + "1 (Error)"},
		"a sidecar without memory":            {mesh(false, corev1.ContainerStatus{RestartCount: 2, State: backsOff("10s"), LastTerminationState: end("OOMKilled", 137)}), meshLoop + "137 (OOMKilled)"},
		"an init container without its image": {mesh(true, corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}}}), "Container web: mesh, which admission added to the pod: ErrImagePull: no"},
	} {
		out := startingWith(nil, tc.pod)
		if got := checkPods(out.Observed, noon); got.message != tc.want || got.ready {
			t.Errorf("%s: %q, want %q", name, got.message, tc.want)
		}
	}
}

// What probes do to a container is told, and by no status more than without them.
func TestMessagesNameFailingProbes(t *testing.T) {
	probe := &corev1.Probe{}
	ended := func(exit int32, reason string) corev1.Pod {
		p := attempt(3, backsOff("10s"))
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: exit, Reason: reason}
		return p
	}
	readiness := func(c *bergv1.Container) { c.ReadinessProbe = probe }
	liveness := func(c *bergv1.Container) { c.LivenessProbe = probe }
	neither := func(*bergv1.Container) {}
	const loop = "Container web: CrashLoopBackOff: last exit code "
	for name, tc := range map[string]struct {
		probe    func(*bergv1.Container)
		pod      corev1.Pod
		wasReady bool
		want     string
	}{
		"no probe":                        {neither, attempt(0, runs), false, "Not ready: web"},
		"a readiness probe":               {readiness, attempt(0, runs), false, "Not ready: web; the readiness probe of web has not succeeded yet"},
		"a readiness probe, being pulled": {readiness, pod("web", false), false, "Not ready: web; the readiness probe of web has not succeeded yet"},
		"a readiness probe, later":        {readiness, attempt(0, runs), true, "Not ready: web; the readiness probe of web does not succeed"},
		"a program that ended":            {neither, ended(0, "Completed"), false, "Container web: CrashLoopBackOff: its program ended by itself, with exit code 0"},
		"a program that ended first":      {neither, attempt(0, hasDied), false, loop + "3 (Error)"},
		"a liveness probe, killed":        {liveness, ended(137, "Error"), false, loop + "137 (Error); its liveness probe may have stopped it"},
		"a liveness probe, ended":         {liveness, ended(143, "Error"), false, loop + "143 (Error); its liveness probe may have stopped it"},
		"a liveness probe, no memory":     {liveness, ended(137, "OOMKilled"), false, loop + "137 (OOMKilled)"},
		"a liveness probe, a crash":       {liveness, ended(1, "Error"), false, loop + "1 (Error)"},
		"no liveness probe, killed":       {readiness, ended(137, "Error"), false, loop + "137 (Error)"},
	} {
		out := startingWith(nil, tc.pod)
		tc.probe(&out.Pinned.Containers[0])
		if tc.wasReady {
			wasReady(out.Instance)
		}
		if got := checkPods(out.Observed, noon); got.message != tc.want || got.ready {
			t.Errorf("%s: %q, want %q", name, got.message, tc.want)
		}
	}
	public := startingWith(nil, attempt(0, runs))
	public.Pinned.Containers[0].Ports = []bergv1.Port{{Port: 80, Type: bergv1.PublicPort}}
	if got := checkPods(public.Observed, noon).message; got != "Not ready: web; port 80 of web accepts no connection yet" {
		t.Errorf("%q", got)
	}
	wasReady(public.Instance)
	if got := checkPods(public.Observed, noon).message; got != "Not ready: web; port 80 of web accepts no connection" {
		t.Errorf("%q", got)
	}
	two := inTwo(startingWith(nil, pod("web", false)))
	for i := range two.Pinned.Containers {
		readiness(&two.Pinned.Containers[i])
	}
	if got := checkPods(two.Observed, noon).message; got != "Not ready: web, db; the readiness probes of web, db have not succeeded yet" {
		t.Errorf("%q", got)
	}
}
