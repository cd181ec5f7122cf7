package why

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

var noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// view is that of a healthy instance, after some changes.
func newView(change ...func(*View)) View {
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

// evicted adds a pod that its node evicted, whose container a signal ended.
func evicted(ago time.Duration) func(*View) {
	return withPod(func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory. "
		p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137, FinishedAt: metav1.NewTime(noon.Add(-ago))}
	})
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
		level console.Level
		want  []string
	}{
		"nothing":      {newView(), console.OK, []string{"No problem found", "1h00m left", "kubectl berg connect alice"}},
		"not observed": {newView(instance(func(i *bergv1.ChallengeInstance) { i.Status = bergv1.ChallengeInstanceStatus{} })), console.Problem, []string{"has not processed", "doctor"}},
		"just created": {newView(instance(func(i *bergv1.ChallengeInstance) {
			i.Status, i.CreationTimestamp = bergv1.ChallengeInstanceStatus{}, metav1.NewTime(noon)
		})), console.Waiting, nil},
		"expired":          {newView(instance(func(i *bergv1.ChallengeInstance) { i.Status.ExpiresAt = &metav1.Time{Time: noon.Add(-time.Minute)} })), console.Problem, []string{"1m00s ago"}},
		"no Challenge":     {newView(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing, ""), instance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "" })), console.Problem, []string{"The Challenge does not exist", "guestbook"}},
		"withdrawn":        {newView(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonChallengeMissing, ""), sets(bergv1.ConditionUpToDate, metav1.ConditionUnknown, bergv1.ReasonChallengeMissing, "")), console.OK, []string{"Its Challenge was deleted"}},
		"busy owner":       {newView(sets(bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonOwnerBusy, "")), console.Waiting, []string{"an owner has one"}},
		"queued":           {newView(sets(bergv1.ConditionAdmitted, metav1.ConditionFalse, bergv1.ReasonQueued, "x"), instance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "" })), console.Waiting, []string{"is queued", "CHALLENGE_MAX_INSTANCES", "Challenge guestbook"}},
		"refused services": {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, "exceeded quota")), console.Problem, []string{"The services cannot be created: the API server refuses", "exceeded quota"}},
		"the first counts": {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, ""), sets(bergv1.ConditionNetworkPolicyCreated, metav1.ConditionFalse, bergv1.ReasonAPINotInstalled, "")), console.Problem, []string{"The network policy cannot be created: the cluster does not serve the required API"}},
		"unknown reason":   {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, "Novelty", "words")), console.Problem, []string{"services created failed: Novelty", "words"}},
		"frozen":           {newView(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonFrozen, ""), instance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "" })), console.Problem, []string{"frozen", "unfreeze"}},

		"image not found":   {newView(pullSays("manifest unknown: not found")), console.Problem, []string{"ghcr.io/x/web:1", "does not have it", "Push the image"}},
		"image needs login": {newView(pullSays("401 Unauthorized")), console.Problem, []string{"refuses access", "PULL_SECRET_NAME"}},
		"too many pulls":    {newView(pullSays("toomanyrequests: You have reached")), console.Problem, []string{"limits the rate", "mirror"}},
		"no such registry":  {newView(pullSays("dial tcp: lookup ghcr.example: no such host")), console.Problem, []string{"cannot reach the registry"}},
		"old event": {newView(pulling, withPod(func(*corev1.Pod) {}), func(v *View) {
			v.Events = []corev1.Event{{Reason: "Failed", Message: "pull: denied", LastTimestamp: metav1.NewTime(noon.Add(-2 * time.Hour))}}
		}), console.Problem, []string{"cannot be pulled."}},

		"crash":          {newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 3, time.Minute))), console.Problem, []string{"exit code 3", "Restarts: 4", "-c web --previous"}},
		"out of memory":  {newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("OOMKilled", 137, time.Minute))), console.Problem, []string{"out of memory", "resourceLimits.memory"}},
		"ends by itself": {newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Completed", 0, time.Minute))), console.Problem, []string{"exit code 0 (its program ended by itself)", "fork", "-c web --previous"}},
		"liveness": {
			newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 2, time.Minute)), killed(noon)),
			console.Problem,
			[]string{"exit code 2 (killed because its liveness probe failed)", "livenessProbe", "event Killing"},
		},
		"liveness, before the port is open": {
			newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 137, time.Minute)), killed(noon), func(v *View) {
				v.Events[0].Message = "Container web failed startup probe, will be restarted"
			}),
			console.Problem,
			[]string{"exit code 137 (killed because its port accepted no connection", "livenessProbe", "event Killing"},
		},
		"liveness, once": {
			newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(startedAgain), killed(noon.Add(-10*time.Minute))),
			console.Problem,
			[]string{"exit code 2. Restarts"},
		},
		"exits before ready": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed"}
		})), console.Problem, []string{"Container web exited with exit code 0", "fork"}},
		"wrong architecture": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(func(p *corev1.Pod) {
			ended("StartError", 128, time.Minute)(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = `exec /app: exec format error`
		})), console.Problem, []string{"another CPU architecture, or is a script", "--platform"}},
		"wrong architecture, by its log": {newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(ended("Error", 1, time.Minute)), func(v *View) {
			v.Pods[0].Spec.NodeName = "a"
			v.LogEnds, v.Architectures = map[string]string{"web": "exec /app: exec format error\n"}, map[string]string{"a": "amd64"}
		}), console.Problem, []string{"exit code 1 (the node cannot execute its program: it was built for another CPU architecture than amd64, that of node a", "--platform"}},
		"a closed port": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
			p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1337)}}}
		})), console.Problem, []string{"its port 1337 accepts no connection", "connectAtStart"}},
		"pull of another architecture": {newView(pullSays("no match for platform in manifest: not found")), console.Problem, []string{"only for another CPU architecture", "--platform"}},
		"pull by HTTP":                 {newView(pullSays("http: server gave HTTP response to HTTPS client")), console.Problem, []string{"speaks HTTP", "hosts.toml"}},
		"recent restart":               {newView(withPod(ended("OOMKilled", 137, time.Minute))), console.Problem, []string{"runs again, but it exited 1m00s ago"}},
		"old restart":                  {newView(withPod(ended("Error", 1, time.Hour))), console.OK, nil},
		"earlier instance": {newView(withPod(func(p *corev1.Pod) {
			ended("Error", 1, time.Minute)(p)
			p.Annotations[bergv1.LabelInstanceID] = "other"
		})), console.OK, nil},
		"no node":       {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "Unschedulable", "Container web: 0/4 nodes are available: 4 Insufficient cpu")), console.Problem, []string{"no node has enough free", "0/4 nodes"}},
		"probe fails":   {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{} })), console.Problem, []string{"readiness probe fails"}},
		"just starting": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), instance(func(i *bergv1.ChallengeInstance) { i.Status.StartedAt = &metav1.Time{Time: noon.Add(-time.Second)} })), console.Waiting, nil},
		"deadline":      {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonStartDeadline, "Not ready within 1h. Container web: ImagePullBackOff: x")), console.Problem, []string{"CHALLENGE_START_DEADLINE", "cannot be pulled"}},

		"no controller":      {newView(sets(bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonGatewayNotReady, "no controller has accepted Gateway a/b (GatewayClass c, controller d)")), console.Problem, []string{"does not serve the addresses", "GatewayClass c, controller d"}},
		"route refused":      {newView(sets(bergv1.ConditionRoutesCreated, metav1.ConditionFalse, bergv1.ReasonRouteRefused, "Route web-80: NotAllowedByListeners")), console.Problem, []string{"refuses a route", "web-80: NotAllowedByListeners"}},
		"route unclaimed":    {newView(sets(bergv1.ConditionRoutesCreated, metav1.ConditionUnknown, bergv1.ReasonRoutePending, "Route web-80: not answered")), console.Waiting, []string{"has not answered"}},
		"node ports used up": {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonOutOfNodePorts, "range is full")), console.Problem, []string{"All node ports", "End instances"}},
		"quota":              {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, "services is forbidden: exceeded quota: q, requested: services=1")), console.Problem, []string{"a quota is used up"}},
		"webhook is down":    {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, `Internal error occurred: failed calling webhook "a.b"`)), console.Problem, []string{"webhook does not answer"}},
		"API server":         {newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonWriteFailed, "etcdserver: request timed out")), console.Waiting, []string{"the API server fails", "readyz"}},
		"pod and quota":      {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonRefused, "Container web: pods is forbidden: exceeded quota: q, requested: pods=1")), console.Problem, []string{"a quota is used up"}},
		"pod and no account": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonWriteFailed, `Container web: pods "a" is forbidden: error looking up service account a/default: not found`)), console.Problem, []string{"its pod is not created: its ServiceAccount does not exist yet", "controller manager"}},
		"evicted before":     {newView(evicted(5*time.Minute), withPod(func(*corev1.Pod) {})), console.Problem, []string{"runs again", "5m00s ago", "The node was low on resource: memory"}},
		"evicted once":       {newView(evicted(3*time.Hour), withPod(func(*corev1.Pod) {})), console.OK, []string{"No problem found", "3h00m ago", "The node was low on resource: memory"}},
		"evicted, starts":    {newView(evicted(time.Minute), withPod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{} }), sets(bergv1.ConditionHealthy, metav1.ConditionFalse, bergv1.ReasonPodsNotReady, "Not ready: web")), console.Problem, []string{"low on resource: memory"}},
		"outdated":           {newView(sets(bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonChallengeChanged, "")), console.OK, []string{"kubectl berg rollout guestbook"}},
		"image changed":      {newView(sets(bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonImageChanged, "")), console.OK, []string{"kubectl berg rollout guestbook"}},
		"content lost":       {newView(sets(bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonRevisionMissing, "the Secret")), console.Problem, []string{"not repaired", "kubectl berg rollout guestbook", "the Secret"}},
		"invalid rollout":    {newView(sets(bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge, ""), instance(func(i *bergv1.ChallengeInstance) { i.Annotations = map[string]string{bergv1.AnnotationRollout: "2"} })), console.Problem, []string{"cannot run"}},

		"terminating":      {newView(instance(func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Second)} })), console.Waiting, nil},
		"blocked":          {newView(instance(func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = &metav1.Time{Time: noon} }), sets(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked, "a finalizer")), console.Problem, []string{"keeps its namespace", "a finalizer"}},
		"deletion refused": {newView(sets(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked, "policy")), console.Problem, []string{"refuses to delete"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := Explain(tc.v)
			text := f.Sentence + " " + f.Do + " " + strings.Join(f.Evidence, " ")
			if f.Level != tc.level {
				t.Errorf("%s, want %s: %s", f.Level, tc.level, text)
			}
			if f.Level == console.Problem && f.Do == "" {
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

// Each row is how a pod of the container web does not come up, as nodes, registries and schedulers say it.
func TestHowPodsDie(t *testing.T) {
	broken := func(reason, message string, change func(*corev1.Pod)) View {
		return newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, reason, "Container web: "+reason+": "+message), withPod(change))
	}
	exits := func(reason string, code int32, log string) View {
		v := broken("CrashLoopBackOff", "x", ended(reason, code, time.Minute))
		v.LogEnds = map[string]string{"web": log}
		return v
	}
	never := func(message string) View {
		return broken("CrashLoopBackOff", "x", func(p *corev1.Pod) {
			ended("StartError", 128, time.Minute)(p)
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.Message = message
		})
	}
	pull := func(reason, image, message string) View {
		v := broken(reason, message, func(p *corev1.Pod) { p.Spec.Containers[0].Image = image })
		return v
	}
	// added is a pod with a container of a service mesh, which keeps exiting or waits.
	added := func(init bool, state corev1.ContainerStatus) View {
		return broken(cmp.Or(waitingReason(state), "CrashLoopBackOff"), "x", func(p *corev1.Pod) {
			p.Namespace, p.Name = "challenge-o", "web-1"
			p.Status.ContainerStatuses[0].State.Running, p.Status.ContainerStatuses[0].Ready = &corev1.ContainerStateRunning{}, true
			if init {
				p.Spec.InitContainers = []corev1.Container{{Name: "mesh", Image: "example.com/mesh:1"}}
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{state}
				return
			}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "mesh", Image: "example.com/mesh:1"})
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, state)
		})
	}
	for name, tc := range map[string]struct {
		v    View
		want []string
		not  string
	}{
		"not executable":                 {exits("Error", 126, ""), []string{"exit code 126 (its command cannot be executed)", "chmod +x"}, ""},
		"a shell finds no program":       {exits("Error", 127, "sh: ./chall: not found"), []string{"its command was not found", "Alpine", "--previous"}, ""},
		"Windows line endings":           {exits("Error", 127, "env: 'python3\\r': No such file or directory"), []string{"Windows line endings", "LF"}, ""},
		"line endings of an entrypoint":  {exits("Error", 1, "exec /entrypoint.sh: no such file or directory"), []string{"interpreter of a script", "Windows line endings"}, "COPY it"},
		"line endings with tini":         {exits("Error", 127, "[FATAL tini (7)] exec /entrypoint.sh failed: No such file or directory"), []string{"interpreter of a script", "LF"}, "COPY it"},
		"line endings in a shell":        {exits("Error", 2, "/run.sh: line 2: $'\\r': command not found\n/run.sh: line 3: cd: /app: No such file or directory"), []string{"Windows line endings"}, "COPY it"},
		"line endings in ash":            {exits("Error", 2, "/run.sh: set: line 2: illegal option -\r\ncat: can't open 'x': No such file or directory"), []string{"Windows line endings"}, "COPY it"},
		"no such interpreter":            {exits("Error", 127, "env: can't execute 'python3': No such file or directory"), []string{"interpreter of a script"}, "COPY it"},
		"a bad interpreter":              {exits("Error", 126, "sh: /app/run: /usr/bin/bash: bad interpreter: No such file or directory"), []string{"interpreter of a script"}, "COPY it"},
		"a file that is missing":         {exits("Error", 1, "FileNotFoundError: [Errno 2] No such file or directory: 'exec.txt'"), []string{"COPY it"}, "interpreter"},
		"a log that is gone":             {exits("Error", 1, ReadLog("failed to try resolving symlinks in path \"/var/log/pods/a.log\": lstat /var/log/pods/a.log: no such file or directory")), []string{"exit code 1. Restarts", "--previous"}, "COPY it"},
		"a log that the node lost":       {exits("Error", 1, ReadLog("unable to retrieve container logs for containerd://0123")), []string{"exit code 1. Restarts"}, "COPY it"},
		"a CPU without instructions":     {exits("Error", 132, ""), []string{"SIGILL", "-march=native"}, ""},
		"a full /dev/shm":                {exits("Error", 135, ""), []string{"SIGBUS", "sharedMemory"}, ""},
		"killed without a probe":         {exits("Error", 137, ""), []string{"SIGKILL", "resourceLimits.memory"}, "liveness"},
		"a segmentation fault":           {exits("Error", 139, ""), []string{"SIGSEGV", "fork"}, ""},
		"a closed connection":            {exits("Error", 141, ""), []string{"SIGPIPE"}, ""},
		"asked to end":                   {exits("Error", 143, ""), []string{"SIGTERM"}, "liveness"},
		"a node that was restarted":      {exits("Unknown", 255, ""), []string{"its node was restarted", "kubectl get nodes"}, ""},
		"a flag that is moved":           {exits("Error", 1, "mv: cannot move '/flag.txt': Read-only file system"), []string{"flags", "copy it"}, ""},
		"a flag that gets another mode":  {exits("Error", 1, "chmod: /flag: Read-only file system"), []string{"copy it"}, ""},
		"a jail without namespaces":      {exits("Error", 255, "[E] clone(flags=CLONE_NEWUSER) failed: Operation not permitted"), []string{"sandbox: nested"}, ""},
		"a browser without a sandbox":    {exits("Error", 1, "Running as root without --no-sandbox is not supported"), []string{"--no-sandbox"}, ""},
		"a port in use":                  {exits("Error", 98, "OSError: [Errno 98] Address already in use"), []string{"port is in use"}, ""},
		"a database that is not there":   {exits("Error", 1, "psycopg2.OperationalError: could not translate host name \"db\""), []string{"start together", "hostnames in the Challenge"}, ""},
		"a host that refuses":            {exits("Error", 1, "Error: connect ECONNREFUSED 10.0.0.7:3306"), []string{"try again"}, ""},
		"memory of a heap":               {exits("Error", 134, "FATAL ERROR: JavaScript heap out of memory"), []string{"SIGABRT", "resourceLimits.memory"}, ""},
		"a log with words of a player":   {exits("Error", 1, "flag{not_shown} permission denied"), []string{"may not do something"}, "not_shown"},
		"an empty log":                   {exits("Error", 1, ""), []string{"exit code 1. Restarts", "--previous"}, ""},
		"a program that is missing":      {never(`exec: "chall": executable file not found in $PATH: unknown`), []string{"cannot be started", "compare command"}, ""},
		"an interpreter that is missing": {never(`exec /entrypoint.sh: no such file or directory`), []string{"interpreter in its first line", "Windows line endings"}, ""},
		"a program without its bit":      {never(`exec: "/app/run": permission denied: unknown`), []string{"chmod +x"}, ""},
		"a flag on a folder":             {never(`error mounting "/var/lib/kubelet/x" to rootfs at "/app": not a directory: Are you trying to mount a directory onto a file (or vice-versa)?`), []string{"dynamicFlag"}, ""},
		"a flag where the start ended earlier": {broken("CreateContainerError", "x", func(p *corev1.Pod) {
			ended("Error", 3, time.Minute)(p)
			p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "CreateContainerError"}
		}), []string{"cannot be started by its node: CreateContainerError"}, "exit code 3"},
		"root is refused":            {broken("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", func(*corev1.Pod) {}), []string{"CreateContainerConfigError", "USER in the Dockerfile"}, ""},
		"a user that is a name":      {broken("CreateContainerConfigError", "image has non-numeric user (ctf), cannot verify user is non-root", func(*corev1.Pod) {}), []string{"write a number"}, ""},
		"a Secret that is gone":      {broken("CreateContainerConfigError", `secret "flag" not found`, func(*corev1.Pod) {}), []string{"The operator writes this object"}, ""},
		"a profile that is missing":  {broken("CreateContainerError", `cannot load seccomp profile "/var/lib/kubelet/seccomp/nested.json"`, func(*corev1.Pod) {}), []string{"CHALLENGE_NESTED_SECCOMP_PROFILE"}, ""},
		"a limit that is too low":    {broken("RunContainerError", "container init was OOM-killed (memory limit too low?)", func(*corev1.Pod) {}), []string{"resourceLimits.memory"}, ""},
		"a login":                    {pull("ErrImagePull", "ghcr.io/x/web:1", "Head https://ghcr.io/v2/x/web/manifests/1: no basic auth credentials"), []string{"refuses access", "PULL_SECRET_NAME"}, ""},
		"a private image":            {pull("ErrImagePull", "x/web:1", "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope"), []string{"refuses access, or has no such image", "PULL_SECRET_NAME"}, ""},
		"an unknown manifest":        {pull("ImagePullBackOff", "ghcr.io/x/web:1", `failed to resolve reference "ghcr.io/x/web:1": manifest unknown`), []string{"does not have it"}, ""},
		"a challenge called denied":  {pull("ErrImagePull", "ghcr.io/x/access-denied:1", `failed to resolve reference "ghcr.io/x/access-denied:1": ghcr.io/x/access-denied:1: not found`), []string{"does not have it"}, "refuses"},
		"one called timeout":         {pull("ErrImagePull", "example.com:5000/timeout:1", `unexpected status from HEAD request to https://example.com:5000/v2/timeout/manifests/1: 403 Forbidden`), []string{"refuses access"}, "cannot reach"},
		"a tag called 404-not-found": {pull("ErrImagePull", "ghcr.io/x/web:404-not-found", `HEAD request to https://ghcr.io/v2/x/web/manifests/404-not-found: 401 Unauthorized`), []string{"refuses access"}, ""},
		"many pulls":                 {pull("ErrImagePull", "web:1", "429 Too Many Requests - Server message: toomanyrequests: You have reached your unauthenticated pull rate limit"), []string{"limits the rate"}, ""},
		"a certificate":              {pull("ErrImagePull", "example.com/web:1", `dial: Head "https://example.com/v2/web/manifests/1": tls: failed to verify certificate: x509: certificate signed by unknown authority`), []string{"does not trust"}, ""},
		"a registry that fails":      {pull("ErrImagePull", "example.com/web:1", `unexpected status from HEAD request to https://example.com/v2/web/manifests/1: 503 Service Unavailable`), []string{"its registry fails"}, ""},
		"a registry that is silent":  {pull("ErrImagePull", "example.com/web:1", `Head "https://example.com/v2/web/manifests/1": context deadline exceeded`), []string{"cannot reach"}, ""},
		"a full disk":                {pull("ErrImagePull", "example.com/web:1", `failed to extract layer sha256:0: write /usr/lib/a: no space left on device`), []string{"disk of its node is full"}, ""},
		"a signature":                {pull("SignatureValidationFailed", "example.com/web:1", "rejected"), []string{"its signature"}, ""},
		"a registry, by its reason":  {pull("RegistryUnavailable", "example.com/web:1", "x"), []string{"cannot be pulled"}, ""},
		"a forbidden system call":    {exits("Error", 159, ""), []string{"SIGSYS", "sandbox: nested"}, ""},
		"a browser that gives up":    {exits("Error", 133, ""), []string{"SIGTRAP", "sharedMemory"}, ""},
		"an older library":           {exits("Error", 1, "./chall: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./chall)"), []string{"build the program in the image"}, ""},
		"a library that is missing":  {exits("Error", 127, "./chall: error while loading shared libraries: libseccomp.so.2: cannot open shared object file: No such file or directory"), []string{"a library is missing"}, "mounted"},
		"a module":                   {exits("Error", 1, "ModuleNotFoundError: No module named 'flask'"), []string{"a module is missing", "Dockerfile"}, ""},
		"a file that was mounted":    {exits("Error", 2, "python: can't open file '/app/app.py': [Errno 2] No such file or directory"), []string{"a file is missing in the image", "COPY"}, ""},
		"a certificate of yesterday": {pull("ErrImagePull", "example.com/web:1", `tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2030-01-01T00:00:00Z`), []string{"has expired"}, "does not trust"},
		"a certificate of another":   {pull("ErrImagePull", "10.0.0.7:5000/web:1", `tls: failed to verify certificate: x509: cannot validate certificate for 10.0.0.7 because it doesn't contain any IP SANs`), []string{"is for another name"}, "does not trust"},
		"a registry without TLS":     {pull("ErrImagePull", "example.com:5000/web:1", `Head "https://example.com:5000/v2/web/manifests/1": tls: first record does not look like a TLS handshake`), []string{"speaks HTTP,"}, ""},
		"a registry with TLS":        {pull("ErrImagePull", "example.com:5000/web:1", `unexpected status from HEAD request to http://example.com:5000/v2/web/manifests/1: 400 Bad Request: Client sent an HTTP request to an HTTPS server.`), []string{"speaks HTTPS,"}, ""},
		"topology":                   {broken("Unschedulable", "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints", func(*corev1.Pod) {}), []string{"spreads pods", "administrator"}, "runtimeClassName"},
		"nodes that are not ready":   {broken("Unschedulable", "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }", func(*corev1.Pod) {}), []string{"no node is ready", "kubectl get nodes"}, "remove the taints"},
		"nodes with full disks":      {broken("Unschedulable", "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/disk-pressure: }", func(*corev1.Pod) {}), []string{"run out of disk"}, "remove the taints"},
		"a node that is silent": {newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, bergv1.ReasonPodsNotReady, "Not ready: web"), withPod(func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "node-7", corev1.PodRunning
			p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].State.Running = true, &corev1.ContainerStateRunning{}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		})), []string{"runs on node node-7, which does not answer", "kubectl get nodes"}, "not known"},
		"a pod without a scheduler": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = nil
		})), []string{"no scheduler has looked at its pod"}, "not known"},
		"a pod behind a gate": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionUnknown, bergv1.ReasonStarting, "Not ready: web"), withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = nil
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
		})), []string{"has a scheduling gate", "spec.schedulingGates"}, "not known"},
		"a taint":                  {broken("Unschedulable", "0/3 nodes are available: 3 node(s) had untolerated taint(s)", func(*corev1.Pod) {}), []string{"no node takes its pods", "taints"}, "free resources"},
		"a drain":                  {broken("Unschedulable", "0/1 nodes are available: 1 node(s) were unschedulable", func(*corev1.Pod) {}), []string{"uncordon"}, "free resources"},
		"a selector":               {broken("Unschedulable", "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector", func(*corev1.Pod) {}), []string{"runtimeClassName", "amd64"}, "free resources"},
		"no room and a taint":      {broken("Unschedulable", "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient memory", func(*corev1.Pod) {}), []string{"free resources", "resourceRequests"}, ""},
		"no room on the node":      {broken("OutOfcpu", "Node didn't have enough resource: cpu", func(*corev1.Pod) {}), []string{"its node had no capacity left", "resourceRequests"}, ""},
		"a node that is shut down": {broken("NodeShutdown", "Pod was rejected", func(*corev1.Pod) {}), []string{"its node went away", "kubectl get nodes"}, ""},
		"a mesh without memory":    {added(false, corev1.ContainerStatus{Name: "mesh", RestartCount: 3, LastTerminationState: terminated("OOMKilled", 137)}), []string{"Container mesh keeps exiting", "out of memory", "The Challenge has no container mesh"}, "in the Challenge guestbook"},
		"a mesh that cannot begin": {added(true, corev1.ContainerStatus{Name: "mesh", RestartCount: 3, LastTerminationState: terminated("Error", 1)}), []string{"Container mesh keeps exiting", "admission webhook"}, ""},
		"a mesh without its image": {added(true, corev1.ContainerStatus{Name: "mesh", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}), []string{"example.com/mesh:1"}, "ghcr.io"},
		"a mesh that has done its work": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, "CrashLoopBackOff", "Container web: x"), withPod(func(p *corev1.Pod) {
			ended("Error", 3, time.Minute)(p)
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "mesh", Ready: true, State: terminated("Completed", 0)}}
		})), []string{"Container web keeps exiting with exit code 3"}, "mesh"},
		"a probe at the deadline": {newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonStartDeadline, "Not ready within 10m0s of the start. Not ready: web; the readiness probe of web has not succeeded yet"), withPod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
		})), []string{"CHALLENGE_START_DEADLINE", "its readiness probe fails", "Compare readinessProbe"}, ""},
		"a crash at the deadline, by its message": {
			newView(sets(bergv1.ConditionPodsReady, metav1.ConditionFalse, bergv1.ReasonStartDeadline, "Not ready within 10m0s of the start. Container web: CreateContainerConfigError: container has runAsNonRoot and image will run as root")),
			[]string{"CHALLENGE_START_DEADLINE", "USER in the Dockerfile"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := Explain(tc.v)
			text := f.Sentence + " " + f.Do
			if f.Level != console.Problem || f.Do == "" {
				t.Errorf("%s, without an action: %s", f.Level, text)
			}
			for _, words := range tc.want {
				if !strings.Contains(text, words) {
					t.Errorf("%q is missing: %s", words, text)
				}
			}
			if tc.not != "" && strings.Contains(text, tc.not) {
				t.Errorf("%q is not true: %s", tc.not, text)
			}
		})
	}
}

// Who may read instances and no pods learns as much as the condition says.
func TestCrewsLearnHowContainersDie(t *testing.T) {
	for message, want := range map[string][]string{
		"Container web: CrashLoopBackOff: last exit code 137 (OOMKilled)":                                         {"Container web keeps exiting with exit code 137 (out of memory)", "resourceLimits.memory"},
		"Container web: CrashLoopBackOff: last exit code 127 (Error)":                                             {"its command was not found", "Alpine"},
		"Container web: CrashLoopBackOff: last exit code 137 (Error); its liveness probe may have stopped it":     {"its liveness probe may have stopped it", "Compare livenessProbe"},
		"Container web: CrashLoopBackOff: last exit code 3 (Error)":                                               {"exit code 3.", "kubectl berg logs alice"},
		"Container web: CrashLoopBackOff: its program ended by itself, with exit code 0":                          {"its program ended by itself", "fork"},
		"Container web: CrashLoopBackOff: StartError: exec: \"chall\": executable file not found in $PATH":        {"cannot be started by its node", "compare command"},
		"Container web: mesh, which admission added to the pod: CrashLoopBackOff: last exit code 137 (OOMKilled)": {"Container mesh keeps exiting", "The Challenge has no container mesh"},
		"Container web: CrashLoopBackOff: its node was restarted, or does not know how it ended":                  {"Container web keeps exiting"},
	} {
		f := Explain(newView(sets(bergv1.ConditionHealthy, metav1.ConditionFalse, "CrashLoopBackOff", message), func(v *View) { v.Unreadable = []string{"pods"} }))
		for _, words := range want {
			if text := f.Sentence + " " + f.Do; f.Level != console.Problem || !strings.Contains(text, words) {
				t.Errorf("%s: %q is missing: %s", message, words, text)
			}
		}
	}
}

func waitingReason(s corev1.ContainerStatus) string {
	if w := s.State.Waiting; w != nil {
		return w.Reason
	}
	return ""
}

func terminated(reason string, code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, FinishedAt: metav1.NewTime(noon.Add(-time.Minute))}}
}

// A condition that is new in the API needs no change here.
func TestAnUnknownConditionIsExplainedByItsName(t *testing.T) {
	level, sentence, _ := explain(&metav1.Condition{Type: "VolumeClaimsCreated", Reason: bergv1.ReasonRefused})
	if want := "The volume claims cannot be created: the API server refuses the request."; sentence != want || level != console.Problem {
		t.Errorf("%s: %q, want %q", level, sentence, want)
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
		f := Explain(newView(withUID, sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, reason, "")))
		if f.Do != want {
			t.Errorf("%s:\n%s, want\n%s", reason, f.Do, want)
		}
	}
}

func TestEvidenceStripsControlCharacters(t *testing.T) {
	f := Explain(newView(sets(bergv1.ConditionServicesCreated, metav1.ConditionFalse, bergv1.ReasonRefused, "a\x1b]0;title\x07b\nc\u202e")))
	if got := f.Evidence[0]; got != "ServicesCreated: a]0;titleb c" {
		t.Errorf("%q", got)
	}
}

func TestLogsAreReadWhereTheyMaySayWhy(t *testing.T) {
	at := func(change ...func(*View)) View {
		return newView(append(change, func(v *View) { v.Pods[0].Name, v.Pods[0].Spec.NodeName = "web-1", "a" })...)
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
