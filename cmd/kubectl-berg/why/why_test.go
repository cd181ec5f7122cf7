package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// view is that of a healthy instance, after some changes.
func view(change ...func(*View)) View {
	i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "alice", Generation: 1, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
	i.Spec.OwnerID, i.Spec.ChallengeRef.Name = "o", "guestbook"
	i.Status = bergv1.ChallengeInstanceStatus{
		Phase: bergv1.PhaseRunning, InstanceID: "id", Namespace: "challenge-o", ObservedGeneration: 1,
		StartedAt: &metav1.Time{Time: noon.Add(-time.Hour)}, ReadyAt: &metav1.Time{Time: noon.Add(-59 * time.Minute)}, ExpiresAt: &metav1.Time{Time: noon.Add(time.Hour)},
		Services: []bergv1.ServiceEndpoint{{Name: "web"}},
	}
	for _, c := range bergv1.BuildConditions {
		i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Created"})
	}
	for _, c := range []string{bergv1.ConditionPodsReady, bergv1.ConditionHealthy, bergv1.ConditionUpToDate} {
		i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue, Reason: "Ready"})
	}
	i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: bergv1.ConditionNamespaceDeleted, Status: metav1.ConditionFalse, Reason: bergv1.ReasonLive})
	v := View{Instance: i, Now: noon}
	for _, c := range change {
		c(&v)
	}
	return v
}

func sets(kind string, status metav1.ConditionStatus, reason, message string) func(*View) {
	return func(v *View) {
		for n := range v.Instance.Status.Conditions {
			if c := &v.Instance.Status.Conditions[n]; c.Type == kind {
				c.Status, c.Reason, c.Message = status, reason, message
			}
		}
	}
}

func withPod(change func(*corev1.Pod)) func(*View) {
	return func(v *View) {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{bergv1.LabelContainer: "web"}, Annotations: map[string]string{bergv1.LabelInstanceID: "id"}}}
		p.Spec.Containers = []corev1.Container{{Name: "web", Image: "ghcr.io/x/web:1"}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web"}}
		change(&p)
		v.Pods = append(v.Pods, p)
	}
}

func ended(reason string, code int32, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount = 4
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, FinishedAt: metav1.NewTime(noon.Add(-ago))}
	}
}

func instance(change func(*bergv1.ChallengeInstance)) func(*View) {
	return func(v *View) { change(v.Instance) }
}

// killed says that the kubelet killed the container web for its liveness probe.
func killed(at time.Time) func(*View) {
	return func(v *View) {
		v.Events = append(v.Events, corev1.Event{Reason: "Killing", Message: "Container web failed liveness probe, will be restarted", LastTimestamp: metav1.NewTime(at)})
	}
}

// startedAgain is a container that ran for the last five minutes before it ended.
func startedAgain(p *corev1.Pod) {
	ended("Error", 2, 0)(p)
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated.StartedAt = metav1.NewTime(noon.Add(-5 * time.Minute))
}

func TestExplainReportsTheFirstProblem(t *testing.T) {
	pulling := sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff", "Container web: ImagePullBackOff: Back-off")
	pullSays := func(text string) func(*View) {
		return func(v *View) {
			pulling(v)
			withPod(func(*corev1.Pod) {})(v)
			v.Events = append(v.Events, corev1.Event{Reason: "Failed", Message: "Failed to pull image: " + text, LastTimestamp: metav1.NewTime(noon)})
		}
	}
	for name, tc := range map[string]struct {
		v     View
		level Level
		want  []string
	}{
		"nothing":      {view(), OK, []string{"No problem found", "1h00m left", "kubectl berg connect alice"}},
		"not observed": {view(instance(func(i *bergv1.ChallengeInstance) { i.Status = bergv1.ChallengeInstanceStatus{} })), Problem, []string{"has not processed", "doctor"}},
		"just created": {view(instance(func(i *bergv1.ChallengeInstance) {
			i.Status, i.CreationTimestamp = bergv1.ChallengeInstanceStatus{}, metav1.NewTime(noon)
		})), Waiting, nil},
		"expired":          {view(instance(func(i *bergv1.ChallengeInstance) { i.Status.ExpiresAt = &metav1.Time{Time: noon.Add(-time.Minute)} })), Problem, []string{"1m00s ago"}},
		"no Challenge":     {view(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing, ""), instance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "" })), Problem, []string{"The Challenge does not exist", "guestbook"}},
		"withdrawn":        {view(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing, ""), sets(bergv1.ConditionUpToDate, metav1.ConditionUnknown, bergv1.ReasonChallengeMissing, "")), OK, []string{"Its Challenge was deleted"}},
		"busy owner":       {view(sets(bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonOwnerBusy, "")), Waiting, []string{"an owner has one"}},
		"queued":           {view(sets(bergv1.ConditionAdmitted, metav1.ConditionFalse, bergv1.ReasonQueued, "x"), instance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "" })), Waiting, []string{"is queued", "CHALLENGE_MAX_INSTANCES", "Challenge guestbook"}},
		"refused services": {view(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, "exceeded quota")), Problem, []string{"The services cannot be created: the API server refuses", "exceeded quota"}},
		"the first counts": {view(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, ""), sets(bergv1.ConditionNetworkPolicyCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled, "")), Problem, []string{"The network policy cannot be created: the cluster does not serve the required API"}},
		"unknown reason":   {view(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, "Novelty", "words")), Problem, []string{"services created failed: Novelty", "words"}},
		"frozen":           {view(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonFrozen, ""), instance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "" })), Problem, []string{"frozen", "unfreeze"}},

		"image not found":   {view(pullSays("manifest unknown: not found")), Problem, []string{"ghcr.io/x/web:1", "does not have it", "Push the image"}},
		"image needs login": {view(pullSays("401 Unauthorized")), Problem, []string{"refuses access", "PULL_SECRET_NAME"}},
		"too many pulls":    {view(pullSays("toomanyrequests: You have reached")), Problem, []string{"limits the rate", "mirror"}},
		"no such registry":  {view(pullSays("dial tcp: lookup ghcr.example: no such host")), Problem, []string{"cannot reach the registry"}},
		"old event": {view(pulling, withPod(func(*corev1.Pod) {}), func(v *View) {
			v.Events = []corev1.Event{{Reason: "Failed", Message: "pull: denied", LastTimestamp: metav1.NewTime(noon.Add(-2 * time.Hour))}}
		}), Problem, []string{"cannot be pulled."}},

		"crash":          {view(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 3, time.Minute))), Problem, []string{"exit code 3", "Restarts: 4", "-c web --previous"}},
		"out of memory":  {view(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("OOMKilled", 137, time.Minute))), Problem, []string{"out of memory", "resourceLimits.memory"}},
		"ends by itself": {view(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Completed", 0, time.Minute))), Problem, []string{"exit code 0 (its program ended by itself)", "fork", "-c web --previous"}},
		"liveness": {
			view(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 2, time.Minute)), killed(noon)),
			Problem,
			[]string{"exit code 2 (killed because its liveness probe failed)", "livenessProbe", "event Killing"},
		},
		"liveness, before the port is open": {
			view(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 137, time.Minute)), killed(noon), func(v *View) {
				v.Events[0].Message = "Container web failed startup probe, will be restarted"
			}),
			Problem,
			[]string{"exit code 137 (killed because its port accepted no connection", "livenessProbe", "event Killing"},
		},
		"liveness, once": {
			view(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(startedAgain), killed(noon.Add(-10*time.Minute))),
			Problem,
			[]string{"exit code 2. Restarts"},
		},
		"exits before ready": {view(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed"}
		})), Problem, []string{"Container web exited with exit code 0", "fork"}},
		"wrong architecture": {view(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(func(p *corev1.Pod) {
			ended("StartError", 128, time.Minute)(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = `exec /app: exec format error`
		})), Problem, []string{"another CPU architecture, or is a script", "--platform"}},
		"wrong architecture, by its log": {view(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 1, time.Minute)), func(v *View) {
			v.Pods[0].Spec.NodeName = "a"
			v.LogEnds, v.Architectures = map[string]string{"web": "exec /app: exec format error\n"}, map[string]string{"a": "amd64"}
		}), Problem, []string{"exit code 1 (the node cannot execute its program: it was built for another CPU architecture than amd64, that of node a", "--platform"}},
		"a closed port": {view(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
			p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1337)}}}
		})), Problem, []string{"its port 1337 accepts no connection", "connectAtStart"}},
		"pull of another architecture": {view(pullSays("no match for platform in manifest: not found")), Problem, []string{"only for another CPU architecture", "--platform"}},
		"pull by HTTP":                 {view(pullSays("http: server gave HTTP response to HTTPS client")), Problem, []string{"speaks HTTP", "hosts.toml"}},
		"recent restart":               {view(withPod(ended("OOMKilled", 137, time.Minute))), Problem, []string{"runs again, but it exited 1m00s ago"}},
		"old restart":                  {view(withPod(ended("Error", 1, time.Hour))), OK, nil},
		"earlier instance": {view(withPod(func(p *corev1.Pod) {
			ended("Error", 1, time.Minute)(p)
			p.Annotations[bergv1.LabelInstanceID] = "other"
		})), OK, nil},
		"no node":       {view(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "Unschedulable", "Container web: 0/4 nodes")), Problem, []string{"no node has enough free", "0/4 nodes"}},
		"probe fails":   {view(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{} })), Problem, []string{"readiness probe fails"}},
		"just starting": {view(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), instance(func(i *bergv1.ChallengeInstance) { i.Status.StartedAt = &metav1.Time{Time: noon.Add(-time.Second)} })), Waiting, nil},
		"deadline":      {view(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonStartDeadline, "Not ready within 1h. Container web: ImagePullBackOff: x")), Problem, []string{"CHALLENGE_START_DEADLINE", "cannot be pulled"}},

		"route refused":   {view(func(v *View) { v.Routes = []Route{{Name: "web-80", Rejected: "NotAllowedByListeners"}} }), Problem, []string{"does not accept its route web-80", "NotAllowedByListeners"}},
		"route unclaimed": {view(func(v *View) { v.Routes = []Route{{Name: "web-80", Unclaimed: true}} }), Problem, []string{"no Gateway has answered"}},
		"outdated":        {view(sets(bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged, "")), OK, []string{"kubectl berg rollout guestbook"}},
		"image changed":   {view(sets(bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonImageChanged, "")), OK, []string{"kubectl berg rollout guestbook"}},
		"invalid rollout": {view(sets(bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge, ""), instance(func(i *bergv1.ChallengeInstance) { i.Annotations = map[string]string{bergv1.AnnotationRollout: "2"} })), Problem, []string{"cannot run"}},

		"terminating":      {view(instance(func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Second)} })), Waiting, nil},
		"blocked":          {view(instance(func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} }), sets(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked, "a finalizer")), Problem, []string{"keeps its namespace", "a finalizer"}},
		"deletion refused": {view(sets(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked, "policy")), Problem, []string{"refuses to delete"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := Explain(tc.v)
			text := f.Sentence + " " + f.Do + " " + strings.Join(f.Evidence, " ")
			if f.Level != tc.level {
				t.Errorf("%s, want %s: %s", f.Level, tc.level, text)
			}
			if f.Level == Problem && f.Do == "" {
				t.Errorf("no action: %s", text)
			}
			for _, words := range tc.want {
				if !strings.Contains(text, words) {
					t.Errorf("%q is missing: %s", words, text)
				}
			}
		})
	}
}

func TestEveryReasonHasAnExplanation(t *testing.T) {
	for _, reason := range []string{
		bergv1.ReasonChallengeMissing, bergv1.ReasonReferenceNotAllowed, bergv1.ReasonNothingToRun, bergv1.ReasonInvalidChallenge,
		bergv1.ReasonNoSuitableNode, bergv1.ReasonFlagMissing, bergv1.ReasonInvalidFlag, bergv1.ReasonQueued, bergv1.ReasonOwnerBusy, bergv1.ReasonNamespaceConflict, bergv1.ReasonObjectConflict,
		bergv1.ReasonContested, bergv1.ReasonAPINotInstalled, bergv1.ReasonRefused, bergv1.ReasonWriteFailed, bergv1.ReasonWaiting,
	} {
		if a := explanations[reason]; a.sentence == "" || a.do == "" {
			t.Errorf("%s has no explanation", reason)
		}
	}
}

// A condition that is new in the API needs no change here.
func TestAnUnknownConditionIsExplainedByItsName(t *testing.T) {
	got := explain(&metav1.Condition{Type: "VolumeClaimsCreated", Reason: bergv1.ReasonRefused})
	if want := "The volume claims cannot be created: the API server refuses the request."; got.sentence != want || got.level != Problem {
		t.Errorf("%+v, want %q", got, want)
	}
}

func TestCommandsAreFilledIn(t *testing.T) {
	withUID := instance(func(i *bergv1.ChallengeInstance) { i.UID = "uid-1" })
	for reason, want := range map[string]string{
		bergv1.ReasonFlagMissing:       `Set it once: kubectl patch ci alice -n berg --type merge -p '{"spec":{"flag":"flag{...}"}}'`,
		bergv1.ReasonOwnerBusy:         "Wait for the end of the instance that the message names, or end it: kubectl berg end OTHER -n berg",
		bergv1.ReasonNamespaceConflict: "If the namespace is not needed, delete it: kubectl delete namespace challenge-o",
		bergv1.ReasonNothingToRun:      "Add spec.containers: kubectl edit challenges.berg.norelect.ch guestbook; its instances then start.",
		bergv1.ReasonObjectConflict:    "Delete the object that the message names from the namespace challenge-o, or restore its ownership label: berg.norelect.ch/instance-uid=uid-1",
	} {
		f := Explain(view(withUID, sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, reason, "")))
		if f.Do != want {
			t.Errorf("%s:\n%s, want\n%s", reason, f.Do, want)
		}
	}
	for reason, a := range explanations {
		if got := fillIn(a.do, view().Instance); strings.Contains(strings.ReplaceAll(strings.ReplaceAll(got, "flag{...}", ""), `{"spec":{`, ""), "{") {
			t.Errorf("%s: a placeholder is left: %s", reason, got)
		}
	}
}

func TestEvidenceStripsControlCharacters(t *testing.T) {
	f := Explain(view(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, "a\x1b]0;title\x07b\nc\u202e")))
	if got := f.Evidence[0]; got != "ServicesCreated: a]0;titleb c" {
		t.Errorf("%q", got)
	}
}

func TestLogsAreReadWhereTheyMaySayWhy(t *testing.T) {
	at := func(change ...func(*View)) View {
		return view(append(change, func(v *View) { v.Pods[0].Name, v.Pods[0].Spec.NodeName = "web-1", "a" })...)
	}
	for name, tc := range map[string]struct {
		v     View
		logs  []Log
		nodes int
	}{
		"a crash":        {at(withPod(ended("Error", 1, time.Minute))), []Log{{"web-1", "web", true}}, 0},
		"out of memory":  {at(withPod(ended("OOMKilled", 137, time.Minute))), nil, 0},
		"ends by itself": {at(withPod(ended("Completed", 0, time.Minute))), nil, 0},
		"liveness":       {at(withPod(ended("Error", 2, time.Minute)), killed(noon)), nil, 0},
		"just ended": {at(withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}
		})), []Log{{"web-1", "web", false}}, 0},
		"never ran": {at(withPod(func(p *corev1.Pod) {
			ended("StartError", 128, time.Minute)(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = "exec /app: exec format error"
		})), nil, 1},
		"no image": {at(withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
		})), nil, 1},
	} {
		if got := Logs(tc.v); !slices.Equal(got, tc.logs) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.logs)
		}
		if got := Nodes(tc.v); len(got) != tc.nodes {
			t.Errorf("%s: nodes %v", name, got)
		}
	}
}
