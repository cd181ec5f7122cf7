package prepull

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
)

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

const image = "registry.example.com/web:1"

// settingsOf are those of an operator that pulls half an hour ahead.
func settingsOf() config.Berg {
	return config.Berg{
		Challenge: config.Challenge{Defaults: config.Defaults{ImagePullPolicy: corev1.PullIfNotPresent}},
		Prepull:   config.Prepull{Lead: 30 * time.Minute, Concurrency: 4},
	}
}

// newChallenge returns one that is to be pulled at any time.
func newChallenge(name string, images ...string) *bergv1.Challenge {
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "event", Name: name, UID: types.UID("uid-" + name), Generation: 3}}
	c.Spec.Prepull = true
	for _, i := range images {
		c.Spec.Containers = append(c.Spec.Containers, bergv1.Container{Hostname: "web", Image: i})
	}
	return c
}

// newNode returns a ready one that lists images.
func newNode(name string, images ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{corev1.LabelArchStable: "amd64"}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, i := range images {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{i}})
	}
	return n
}

func observedOf(objects ...client.Object) Observed {
	o := Observed{
		Nodes: map[types.UID]*corev1.Node{}, RuntimeClasses: map[string]*nodev1.RuntimeClass{},
		Namespaces: map[types.UID]*corev1.Namespace{}, Blocked: map[types.UID]string{},
	}
	for _, object := range objects {
		switch object := object.(type) {
		case *bergv1.Challenge:
			o.Challenges = append(o.Challenges, object)
		case *corev1.Node:
			o.Nodes[object.UID] = object
		case *nodev1.RuntimeClass:
			o.RuntimeClasses[object.Name] = object
		}
	}
	return o
}

func TestFullName(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for given, want := range map[string]string{
		"nginx":                     "docker.io/library/nginx:latest",
		"nginx:1":                   "docker.io/library/nginx:1",
		"example/web":               "docker.io/example/web:latest",
		"docker.io/library/nginx:1": "docker.io/library/nginx:1",
		"localhost/web":             "localhost/web:latest",
		"localhost:5000/a/web:2":    "localhost:5000/a/web:2",
		"ghcr.io/a/web" + digest:    "ghcr.io/a/web" + digest,
		"ghcr.io/a/web:3" + digest:  "ghcr.io/a/web" + digest,
		"nginx" + digest:            "docker.io/library/nginx" + digest,
	} {
		if got := fullName(given); got != want {
			t.Errorf("%s is %s, want %s", given, got, want)
		}
	}
}

func TestTakes(t *testing.T) {
	tainted := func(effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "sandbox", Value: "yes", Effect: effect}}
		}
	}
	gvisor := &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{"sandbox": "gvisor"},
		Tolerations:  []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}},
	}}
	sandboxed := func(n *corev1.Node) {
		tainted(corev1.TaintEffectNoSchedule)(n)
		n.Labels["sandbox"] = "gvisor"
	}
	executable := bergv1.Container{DynamicFlag: &bergv1.DynamicFlag{Executable: &bergv1.FlagFile{}}}
	for name, tc := range map[string]struct {
		change    func(*corev1.Node)
		container bergv1.Container
		class     *nodev1.RuntimeClass
		want      bool
	}{
		"ready":                     {func(*corev1.Node) {}, bergv1.Container{}, nil, true},
		"not ready":                 {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, bergv1.Container{}, nil, false},
		"never heard of":            {func(n *corev1.Node) { n.Status.Conditions = nil }, bergv1.Container{}, nil, false},
		"cordoned":                  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, bergv1.Container{}, nil, false},
		"going":                     {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: noon} }, bergv1.Container{}, nil, false},
		"tainted":                   {tainted(corev1.TaintEffectNoSchedule), bergv1.Container{}, nil, false},
		"evicting":                  {tainted(corev1.TaintEffectNoExecute), bergv1.Container{}, nil, false},
		"rather not":                {tainted(corev1.TaintEffectPreferNoSchedule), bergv1.Container{}, nil, true},
		"of a RuntimeClass":         {sandboxed, bergv1.Container{}, gvisor, true},
		"of no RuntimeClass":        {func(*corev1.Node) {}, bergv1.Container{}, gvisor, false},
		"of a RuntimeClass for all": {func(*corev1.Node) {}, bergv1.Container{}, &nodev1.RuntimeClass{}, true},
		"of another architecture":   {func(n *corev1.Node) { n.Labels[corev1.LabelArchStable] = "arm64" }, executable, nil, false},
		"of the right architecture": {func(*corev1.Node) {}, executable, nil, true},
	} {
		n := newNode("a")
		tc.change(n)
		if got := takes(n, newPlacement(tc.container, tc.class)); got != tc.want {
			t.Errorf("a node that is %s: %v", name, got)
		}
	}
}

func TestWindow(t *testing.T) {
	hidden := func(at time.Duration) func(*bergv1.Challenge) {
		return func(c *bergv1.Challenge) { c.Spec.HideUntil = noon.Add(at).Format(time.RFC3339) }
	}
	for name, tc := range map[string]struct {
		change func(*bergv1.Challenge)
		want   stage
		left   time.Duration
	}{
		"not hidden":        {func(*bergv1.Challenge) {}, never, 0},
		"hidden in words":   {func(c *bergv1.Challenge) { c.Spec.HideUntil = "tomorrow" }, never, 0},
		"hidden long":       {hidden(time.Hour), later, 30 * time.Minute},
		"lead begins":       {hidden(30 * time.Minute), open, 30 * time.Minute},
		"a second is left":  {hidden(time.Second), open, time.Second},
		"shown now":         {hidden(0), over, 0},
		"shown long ago":    {hidden(-time.Hour), over, 0},
		"always":            {func(c *bergv1.Challenge) { c.Spec.Prepull = true }, open, 0},
		"always, and shown": {func(c *bergv1.Challenge) { hidden(-time.Hour)(c); c.Spec.Prepull = true }, open, 0},
		"being deleted":     {func(c *bergv1.Challenge) { c.Spec.Prepull, c.DeletionTimestamp = true, &metav1.Time{Time: noon} }, never, 0},
	} {
		c := newChallenge("web")
		c.Spec.Prepull = false
		tc.change(c)
		w := computeWindow(c, false, 30*time.Minute, noon)
		if w.Stage != tc.want || w.untilChange(noon) != tc.left {
			t.Errorf("%s: stage %d which changes in %s, want %d and %s", name, w.Stage, w.untilChange(noon), tc.want, tc.left)
		}
	}
}

func TestAPlatformWantsImages(t *testing.T) {
	long := strings.Repeat("a", 100)
	o := observedOf(newChallenge("web", image), newChallenge("other", image), newChallenge(long, image), newNode("1"))
	for _, c := range o.Challenges {
		c.Spec.Prepull = false
	}
	ns := o.Challenges[0].Namespace
	o.Wanted = map[types.NamespacedName]bool{
		{Namespace: ns, Name: "web"}: true, {Namespace: "elsewhere", Name: "other"}: true, {Namespace: ns, Name: naming.LabelValue(long)}: true,
	}
	for _, d := range computeDesired(o, settingsOf(), noon) {
		if want := d.Challenge.Name != "other"; (len(d.Targets) > 0) != want {
			t.Errorf("%s: %d pulls", d.Challenge.Name, len(d.Targets))
		}
	}
}

func TestDesired(t *testing.T) {
	soon, later := newChallenge("soon", image, image, "b"), newChallenge("later", image)
	for c, in := range map[*bergv1.Challenge]time.Duration{soon: 10 * time.Minute, later: 20 * time.Minute} {
		c.Spec.Prepull, c.Spec.HideUntil = false, noon.Add(in).Format(time.RFC3339)
	}
	always := newChallenge("always", image)
	always.Spec.Containers[0].RuntimeClassName = "missing"
	all := computeDesired(observedOf(always, later, soon, newNode("1"), newNode("2")), settingsOf(), noon)
	var names []string
	for _, w := range all {
		names = append(names, w.Challenge.Name)
	}
	if !slices.Equal(names, []string{"soon", "later", "always"}) {
		t.Errorf("the order is %v", names)
	}
	want := []Target{{"uid-1", "b", ""}, {"uid-2", "b", ""}, {"uid-1", image, ""}, {"uid-2", image, ""}}
	if !slices.Equal(all[0].Targets, want) {
		t.Errorf("%v", all[0].Targets)
	}
	if len(all[2].Targets) > 0 || len(all[2].Nowhere) != 1 || !strings.Contains(all[2].Nowhere[0], "RuntimeClass missing") {
		t.Errorf("without its RuntimeClass: %+v", all[2])
	}
}

func TestCheckPods(t *testing.T) {
	waits := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	const text = `failed to pull: registry.example.com: 429 Too Many Requests`
	for name, tc := range map[string]struct {
		state corev1.ContainerState
		after time.Duration
		want  PullState
	}{
		"nothing yet":             {corev1.ContainerState{}, time.Minute, PullState{Left: maxPull - time.Minute}},
		"being pulled":            {waits("ContainerCreating", ""), time.Minute, PullState{Left: maxPull - time.Minute}},
		"pulled for too long":     {waits("ContainerCreating", ""), maxPull, PullState{Failed: true, Message: "not done after 30m0s: the pull has not ended"}},
		"refused by the registry": {waits("ErrImagePull", text), time.Minute, PullState{Failed: true, Message: "ErrImagePull: " + text}},
		"refused again":           {waits("ImagePullBackOff", text), time.Minute, PullState{Failed: true, Message: "ImagePullBackOff: " + text}},
		"no name of an image":     {waits("InvalidImageName", "x"), 0, PullState{Failed: true, Message: "InvalidImageName: x"}},
		"not to be started":       {waits("RunContainerError", "no such file"), 0, PullState{Pulled: true}},
		"not to be created":       {waits("CreateContainerError", "no such file"), 0, PullState{Pulled: true}},
		"tried again":             {waits("CrashLoopBackOff", ""), maxPull, PullState{Pulled: true}},
		"not started":             {corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "StartError"}}, 0, PullState{Pulled: true}},
		"running":                 {corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, 0, PullState{Pulled: true}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, State: tc.state}}}}
		if got := checkPods(noon, []*corev1.Pod{pod}, "no pod", noon.Add(tc.after)); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		pod.DeletionTimestamp = &metav1.Time{Time: noon}
		if got := checkPods(noon, []*corev1.Pod{pod}, "no pod", noon); got.Pulled || got.Failed {
			t.Errorf("%s, of a pod that goes: %+v", name, got)
		}
	}
	unplaced := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "too many pods"}}}}
	if got := checkPods(noon, []*corev1.Pod{unplaced}, "no pod", noon.Add(maxPull)); !got.Failed || !strings.Contains(got.Message, "too many pods") {
		t.Errorf("no place: %+v", got)
	}
	if got := checkPods(noon, nil, "no pod", noon.Add(maxPull)); !got.Failed || !strings.Contains(got.Message, "no pod") {
		t.Errorf("no pod: %+v", got)
	}
}

// The controllers of Kubernetes create the pod of a pull, and the API server may refuse it.
func TestAPullWhosePodIsRefused(t *testing.T) {
	pull := Pull{Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}}}
	says := func(message string) {
		pull.Deployment.Status.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: message, LastTransitionTime: metav1.NewTime(noon),
		}}
	}
	for message, want := range map[string]PullState{
		`pods "a" is forbidden: error looking up service account b/default: serviceaccount "default" not found`: {Left: maxPull - time.Second},
		"etcdserver: leader changed":           {Left: maxPull - time.Second},
		"exceeded quota: q, requested: pods=1": {Failed: true, Message: "the API server refuses its pod: exceeded quota: q, requested: pods=1. End what uses the quota, or raise it: kubectl get resourcequotas -A"},
	} {
		says(message)
		if got := pull.check(noon.Add(time.Second)); got != want {
			t.Errorf("%s: %+v, want %+v", message, got, want)
		}
	}
	says("etcdserver: leader changed")
	if got := pull.check(noon.Add(maxPull)); !strings.Contains(got.Message, "leader changed") {
		t.Errorf("at the end: %+v", got)
	}
}

// chosen are the targets that begin, as node and image.
func chosen(starts []start) []string {
	out := []string{}
	for _, s := range starts {
		out = append(out, strings.TrimPrefix(string(s.Target.Node), "uid-")+" "+s.Target.Image)
	}
	return out
}

func TestNext(t *testing.T) {
	first, second := newChallenge("a", "x", "y"), newChallenge("b", "x", "z")
	o := observedOf(first, second, newNode("1"), newNode("2"), newNode("3"))
	all := computeDesired(o, settingsOf(), noon)
	pull := func(on, of string) Target { return Target{Node: types.UID("uid-" + on), Image: of} }
	for name, tc := range map[string]struct {
		limit  int
		active []Pull
		know   func(*store)
		want   []string
		retry  time.Duration
	}{
		"one on each node":        {4, nil, nil, []string{"1 x", "2 x", "3 x"}, 0},
		"as many as allowed":      {2, nil, nil, []string{"1 x", "2 x"}, 0},
		"with pulls in progress":  {2, []Pull{{Target: pull("1", "x")}}, nil, []string{"2 x"}, 0},
		"none with too many":      {1, []Pull{{Target: pull("1", "x")}, {Target: pull("2", "x")}}, nil, []string{}, 0},
		"not what is there":       {4, nil, func(l *store) { l.pulled(pull("1", "x")); l.pulled(pull("2", "y")) }, []string{"2 x", "3 x", "1 y"}, 0},
		"of both Challenges":      {4, nil, func(l *store) { l.pulled(pull("1", "x")); l.pulled(pull("1", "y")) }, []string{"2 x", "3 x", "1 z"}, 0},
		"not while a pause lasts": {1, nil, func(l *store) { l.fail(attempt{"uid-a", pull("1", "x")}, 3, "d", "no", noon.Add(-10*time.Second)) }, []string{"2 x"}, 20 * time.Second},
		"again after the pause":   {1, nil, func(l *store) { l.fail(attempt{"uid-a", pull("1", "x")}, 3, "d", "no", noon.Add(-pullDelays.First)) }, []string{"1 x"}, 0},
		"again when it is edited": {1, nil, func(l *store) { l.fail(attempt{"uid-a", pull("1", "x")}, 2, "d", "no", noon) }, []string{"1 x"}, 0},
		"never after too many": {1, nil, func(l *store) {
			for range maxAttempts {
				l.fail(attempt{"uid-a", pull("1", "x")}, 3, "", "no", noon.Add(-24*time.Hour))
			}
		}, []string{"2 x"}, 0},
	} {
		l := newStore()
		if tc.know != nil {
			tc.know(l)
		}
		starts, retry := next(all, tc.active, l, tc.limit, noon)
		if got := chosen(starts); !slices.Equal(got, tc.want) || retry != tc.retry {
			t.Errorf("%s: %v and again in %s, want %v and %s", name, got, retry, tc.want, tc.retry)
		}
	}
	all[0].Blocked = "in the way"
	if starts, _ := next(all, nil, newStore(), 1, noon); !slices.Equal(chosen(starts), []string{"1 x"}) || starts[0].Desired.Challenge != second {
		t.Errorf("next to a Challenge that is blocked: %v", chosen(starts))
	}
}

func TestFailuresCountOnceAndPause(t *testing.T) {
	l, a := newStore(), attempt{"uid-a", Target{Node: "uid-1", Image: image}}
	want := pullDelays.First
	for n := range maxAttempts {
		of := types.UID(strings.Repeat("d", n+1))
		if !l.fail(a, 3, of, "no", noon) || l.fail(a, 3, of, "no", noon) {
			t.Fatalf("attempt %d does not count once", n+1)
		}
		f, ok := l.findFailure(a, 3)
		at, again := f.again()
		if !ok || f.Count != n+1 || at.Sub(noon) != want || again != (n+1 < maxAttempts) {
			t.Errorf("after %d attempts: %+v, again at %s: %v", n+1, f, at, again)
		}
		want *= 2
	}
	if l.fail(a, 4, "new", "no", noon); l.failed[a].Count != 1 {
		t.Errorf("an edited Challenge begins with %+v", l.failed[a])
	}
}

func TestAStatusThatIsRefusedIsOfferedAgain(t *testing.T) {
	l := newStore()
	for n, want := range []int{5, 10, 20, 40, 80, 160, 320, 600, 600} {
		l.refuse("uid-a", 3, noon)
		if got := l.refused["uid-a"].again().Sub(noon); got != time.Duration(want)*time.Second {
			t.Errorf("after %d refusals: again after %s, want %ds", n+1, got, want)
		}
	}
	for range 100 {
		l.refuse("uid-a", 3, noon)
	}
	if got := l.refused["uid-a"].again().Sub(noon); got != statusDelays.Max {
		t.Errorf("after many refusals: again after %s", got)
	}
	if l.refuse("uid-a", 4, noon); l.refused["uid-a"].Count != 1 {
		t.Errorf("an edited Challenge begins with %+v", l.refused["uid-a"])
	}
	if l.update(observedOf(), nil, false); len(l.refused) > 0 {
		t.Error("a Challenge that is gone is remembered")
	}
}

func TestStoreFollowsNodes(t *testing.T) {
	c := newChallenge("web", image)
	target := Target{Node: "uid-1", Image: image}
	look := func(l *store, n *corev1.Node, always bool) {
		o := observedOf(c, n)
		l.update(o, computeDesired(o, settingsOf(), noon), always)
	}
	l := newStore()
	if look(l, newNode("1"), false); l.isDone(target) {
		t.Error("an image that was not pulled counts as present")
	}
	if look(l, newNode("1", image), true); l.isDone(target) {
		t.Error("what must be pulled always counts as pulled")
	}
	if look(l, newNode("1", image), false); !l.isDone(target) {
		t.Error("what the node lists is not there")
	}
	if look(l, newNode("1"), false); l.isDone(target) {
		t.Error("what the node has thrown away is there")
	}
	l.pulled(target)
	if look(l, newNode("1"), false); !l.isDone(target) {
		t.Error("what was pulled is not there until the node says so")
	}
	l.fail(attempt{c.UID, target}, 3, "d", "no", noon)
	if look(l, newNode("1"), false); len(l.failed) > 0 {
		t.Error("a failure outlives the success after it")
	}
	full := newNode("1", slices.Repeat([]string{"other"}, listedImages)...)
	look(l, newNode("1", image), false)
	if look(l, full, false); !l.isDone(target) {
		t.Error("what a node may only not list is not there")
	}
	if look(l, newNode("2"), false); len(l.done) > 0 {
		t.Error("a node that is gone is remembered")
	}
}

// The pod may run in a namespace of the Pod Security level restricted, goes to its node only,
// and has a command that no file system can hold.
func TestDeployment(t *testing.T) {
	in := Inputs{
		Challenge: "u", Target: Target{Node: "n", Image: image, RuntimeClass: "gvisor"}, Node: "node-1", PullSecret: "pull-1",
		Config: config.Challenge{Defaults: config.Defaults{ImagePullPolicy: corev1.PullAlways, UserNamespaces: config.UserNamespacesTrue}}, Now: noon,
	}
	d := deployment(in)
	if !ownerFor("u").Owns(d) || findChallengeUID(d) != "u" || parseTarget(d) != in.Target || d.Namespace != "berg-prepull-u" {
		t.Errorf("%+v", d.ObjectMeta)
	}
	if !OwnershipLabels.Selector().Matches(labelsOf(d.Spec.Template.Labels)) || d.Spec.Selector.MatchLabels[bergv1.PrepullLabel] != d.Name {
		t.Errorf("the pods are not found: %v", d.Spec.Template.Labels)
	}
	s := d.Spec.Template.Spec
	c := s.Containers[0]
	if name := strings.TrimPrefix(c.Command[0], "/"); len(c.Command) != 1 || len(name) <= 255 || strings.Contains(name, "/") {
		t.Errorf("a file could have the name %q", c.Command)
	}
	if len(c.Args) > 0 || c.Image != image || c.ImagePullPolicy != corev1.PullAlways || len(s.InitContainers) > 0 || c.Lifecycle != nil {
		t.Errorf("%+v", c)
	}
	if *s.AutomountServiceAccountToken || !*s.SecurityContext.RunAsNonRoot || s.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		*c.SecurityContext.AllowPrivilegeEscalation || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("not restricted: %+v, %+v", s.SecurityContext, c.SecurityContext)
	}
	field := s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0]
	if field.Key != "metadata.name" || !slices.Equal(field.Values, []string{"node-1"}) || s.NodeName != "" {
		t.Errorf("it goes to %+v", field)
	}
	if *s.RuntimeClassName != "gvisor" || s.ImagePullSecrets[0].Name != "pull-1" || *s.HostUsers || len(c.Resources.Requests) > 0 {
		t.Errorf("%+v", s)
	}
}

func TestDeploymentsDiffer(t *testing.T) {
	in := Inputs{Challenge: "u", Target: Target{Node: "n", Image: image}, Node: "node-1", Now: noon}
	d := deployment(in)
	in.Now = noon.Add(time.Nanosecond)
	if deployment(in).Name == d.Name {
		t.Error("a second attempt has the name of the first")
	}
	if s := d.Spec.Template.Spec; s.RuntimeClassName != nil || s.ImagePullSecrets != nil || s.HostUsers != nil {
		t.Errorf("%+v", s)
	}
}

type labelsOf map[string]string

func (l labelsOf) Has(key string) bool              { _, ok := l[key]; return ok }
func (l labelsOf) Get(key string) string            { return l[key] }
func (l labelsOf) Lookup(key string) (string, bool) { v, ok := l[key]; return v, ok }

func TestRoom(t *testing.T) {
	ns := namespace(newChallenge("web"))
	if findChallengeUID(ns) != "uid-web" || ns.Labels["pod-security.kubernetes.io/enforce"] != "restricted" || ns.Name != "berg-prepull-uid-web" {
		t.Errorf("%+v", ns.ObjectMeta)
	}
	for name, change := range map[string]func(*corev1.Namespace){
		"another proof": func(ns *corev1.Namespace) { ns.Annotations[OwnershipLabels.Annotation()] = "uid-other" },
		"no proof":      func(ns *corev1.Namespace) { ns.Annotations = nil },
		"another name":  func(ns *corev1.Namespace) { ns.Name = "challenge-1" },
	} {
		ns := namespace(newChallenge("web"))
		if change(ns); findChallengeUID(ns) != "" {
			t.Errorf("%s is taken for one of ours", name)
		}
	}
	p := networkPolicy("u")
	if len(p.Spec.PolicyTypes) != 2 || p.Spec.Ingress != nil || p.Spec.Egress != nil || len(p.Spec.PodSelector.MatchLabels) > 0 || findChallengeUID(p) != "u" {
		t.Errorf("%+v", p)
	}
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("s", 253), UID: "1", ResourceVersion: "7", Labels: map[string]string{"a": "b"}}, Data: map[string][]byte{"k": []byte("v")}}
	copied := pullSecret("u", "room", source)
	if len(copied.Name) > 253 || string(copied.Data["k"]) != "v" || copied.Labels["a"] != "" || findChallengeUID(copied) != "u" {
		t.Errorf("%+v", copied)
	}
	source.ResourceVersion = "8"
	if other := pullSecret("u", "room", source); other.Name == copied.Name {
		t.Error("another version has the same name")
	}
	if other := pullSecret("u", "other", source); other.Name == pullSecret("u", "room", source).Name {
		t.Error("another namespace has the same name")
	}
}

func TestComputeStatus(t *testing.T) {
	hide := func(in time.Duration) func(*bergv1.Challenge) {
		return func(c *bergv1.Challenge) { c.Spec.Prepull, c.Spec.HideUntil = false, noon.Add(in).Format(time.RFC3339) }
	}
	had := func(c *bergv1.Challenge, status metav1.ConditionStatus, reason string, generation int64) {
		c.Status.Conditions = []metav1.Condition{{Type: bergv1.ChallengeConditionImagesReady, Status: status, Reason: reason, ObservedGeneration: generation, Message: "so"}}
	}
	target := func(on string) Target { return Target{Node: types.UID("uid-" + on), Image: image} }
	failed := func(l *store, on string, times int) {
		for range times {
			l.fail(attempt{"uid-web", target(on)}, 3, "", "ErrImagePull: 429 Too Many Requests", noon)
		}
	}
	for name, tc := range map[string]struct {
		change  func(*bergv1.Challenge)
		know    func(*store)
		see     func(*Observed)
		reason  string
		says    string
		novelty statusChange
	}{
		"not asked for":       {func(c *bergv1.Challenge) { c.Spec.Prepull = false }, nil, nil, "", "", unchanged},
		"no longer asked for": {func(c *bergv1.Challenge) { c.Spec.Prepull = false; had(c, "True", bergv1.ImagesPulled, 3) }, nil, nil, "", "", changed},
		"it is hidden":        {hide(time.Hour), nil, nil, bergv1.ImagesScheduled, "from 2030-01-31T12:30:00Z on", changed},
		"it begins":           {nil, nil, nil, bergv1.ImagesPulling, "0 of 2 pulls on 2 nodes are done", changed},
		"it continues": {
			func(c *bergv1.Challenge) { had(c, "False", bergv1.ImagesPulling, 3) }, func(l *store) { l.pulled(target("1")) }, nil,
			bergv1.ImagesPulling, "1 of 2 pulls on 2 nodes are done", progress,
		},
		"it is done": {
			func(c *bergv1.Challenge) { had(c, "False", bergv1.ImagesPulling, 3) }, func(l *store) { l.pulled(target("1")); l.pulled(target("2")) }, nil,
			bergv1.ImagesPulled, "2 of 2 pulls on 2 nodes are done", changed,
		},
		"it fails": {
			nil, func(l *store) { l.pulled(target("1")); failed(l, "2", 1) }, nil,
			bergv1.ImagesPullFailed, "1 of 2 pulls on 2 nodes are done; node 2: " + image + ": ErrImagePull: 429 Too Many Requests (attempt 1 of 6, it is tried again)", changed,
		},
		"it has failed": {nil, func(l *store) { failed(l, "2", maxAttempts) }, nil, bergv1.ImagesPullFailed, "tried again when the Challenge is changed", changed},
		"it is blocked": {nil, nil, func(o *Observed) { o.Blocked["uid-web"] = "Namespace x exists" }, bergv1.ImagesPulling, "Namespace x exists", changed},
		"no containers": {func(c *bergv1.Challenge) { c.Spec.Containers = nil }, nil, nil, bergv1.ReasonNothingToRun, "no containers", changed},
		"no nodes":      {nil, nil, func(o *Observed) { o.Nodes = nil }, bergv1.ImagesNoNode, "No ready node takes pods of the Challenge; no ready node may run " + image, changed},
		"one image has no node": {func(c *bergv1.Challenge) {
			c.Spec.Containers = append(c.Spec.Containers, bergv1.Container{Image: "b", RuntimeClassName: "missing"})
		}, nil, nil, bergv1.ImagesNoNode, "0 of 2 pulls on 2 nodes are done; no ready node may run b (RuntimeClass missing is missing)", changed},
		"shown, and never seen before": {hide(-time.Hour), nil, nil, "", "", unchanged},
		"shown, and done":              {func(c *bergv1.Challenge) { hide(-time.Hour)(c); had(c, "True", bergv1.ImagesPulled, 3) }, nil, nil, bergv1.ImagesPulled, "so", unchanged},
		"shown, and edited since":      {func(c *bergv1.Challenge) { hide(-time.Hour)(c); had(c, "True", bergv1.ImagesPulled, 2) }, nil, nil, bergv1.ImagesTimeIsOver, "hideUntil is over", changed},
		"shown, and not done":          {func(c *bergv1.Challenge) { hide(-time.Hour)(c); had(c, "False", bergv1.ImagesPulling, 3) }, nil, nil, bergv1.ImagesTimeIsOver, "hideUntil is over", changed},
		"shown, and under way": {func(c *bergv1.Challenge) { hide(-time.Hour)(c); had(c, "False", bergv1.ImagesPulling, 3) }, nil, func(o *Observed) {
			o.Pulls = []Pull{{Challenge: "uid-web"}}
		}, bergv1.ImagesPulling, "so", unchanged},
	} {
		c, l := newChallenge("web", image), newStore()
		if tc.change != nil {
			tc.change(c)
		}
		o := observedOf(c, newNode("1"), newNode("2"))
		if tc.know != nil {
			tc.know(l)
		}
		if tc.see != nil {
			tc.see(&o)
		}
		w := computeDesired(o, settingsOf(), noon)[0]
		got := computeStatus(c, &w, o, l, noon)
		var reason, message string
		if len(c.Status.Conditions) > 0 {
			reason, message = c.Status.Conditions[0].Reason, c.Status.Conditions[0].Message
			if ready := c.Status.Conditions[0].Status == metav1.ConditionTrue; ready != (reason == bergv1.ImagesPulled) {
				t.Errorf("%s: %s is %s", name, reason, c.Status.Conditions[0].Status)
			}
		}
		if got != tc.novelty || reason != tc.reason || !strings.Contains(message, tc.says) {
			t.Errorf("%s: %d %s %q, want %d %s %q", name, got, reason, message, tc.novelty, tc.reason, tc.says)
		}
		if again := computeStatus(c, &w, o, l, noon.Add(time.Hour)); again != unchanged {
			t.Errorf("%s: says something new again", name)
		}
	}
}

func TestManyFailuresAreShort(t *testing.T) {
	c, l := newChallenge("web", image), newStore()
	objects := []client.Object{c}
	for n := range 9 {
		name := string(rune('a' + n))
		objects = append(objects, newNode(name))
		l.fail(attempt{c.UID, Target{Node: types.UID("uid-" + name), Image: image}}, 3, "", "no", noon)
	}
	o := observedOf(objects...)
	w := computeDesired(o, settingsOf(), noon)[0]
	computeStatus(c, &w, o, l, noon)
	if got := c.Status.Conditions[0].Message; strings.Count(got, "node ") != maxReported || !strings.Contains(got, "6 more have failed") {
		t.Error(got)
	}
}

func TestNeedsNamespace(t *testing.T) {
	c := newChallenge("web", image)
	o := observedOf(c, newNode("1"))
	w := computeDesired(o, settingsOf(), noon)[0]
	l, target := newStore(), Target{Node: "uid-1", Image: image}
	if !needsNamespace(&w, l) {
		t.Error("nothing is pulled, and no room is needed")
	}
	for n := range maxAttempts {
		l.fail(attempt{c.UID, target}, 3, "", "no", noon)
		if want := n+1 < maxAttempts; needsNamespace(&w, l) != want {
			t.Errorf("after %d attempts the room is needed: %v", n+1, !want)
		}
	}
	l = newStore()
	if l.pulled(target); needsNamespace(&w, l) {
		t.Error("all is pulled, and the room is needed")
	}
}

func TestNetworkPolicyGolden(t *testing.T) {
	const path = "testdata/closed.golden.yaml"
	got, err := yaml.Marshal(networkPolicy("7c0ffee0-1111-4222-8333-444455556666"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got) {
		t.Errorf("the policy differs from %s:\n%s", path, got)
	}
}

func TestPredicates(t *testing.T) {
	pod := &corev1.Pod{}
	ours := namespace(newChallenge("web"))
	for name, tc := range map[string]struct {
		which  predicate.Predicate
		before client.Object
		change func(client.Object)
		want   bool
	}{
		"a Challenge is edited":   {challengeChanged, newChallenge("web"), func(o client.Object) { o.SetGeneration(4) }, true},
		"a Challenge is reported": {challengeChanged, newChallenge("web"), func(o client.Object) { o.SetResourceVersion("9") }, false},
		"a Challenge is replaced": {challengeChanged, newChallenge("web"), func(o client.Object) { o.SetUID("new") }, true},
		"a node lists an image":   {nodeChanged, newNode("1"), func(o client.Object) { o.(*corev1.Node).Status.Images = newNode("1", image).Status.Images }, true},
		"a node is cordoned":      {nodeChanged, newNode("1"), func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = true }, true},
		"a node is not ready":     {nodeChanged, newNode("1"), func(o client.Object) { o.(*corev1.Node).Status.Conditions = nil }, true},
		"a node beats":            {nodeChanged, newNode("1"), func(o client.Object) { o.SetResourceVersion("9") }, false},
		"a pull has failed":       {podChanged, pod, func(o client.Object) { o.(*corev1.Pod).Status.ContainerStatuses = []corev1.ContainerStatus{{}} }, true},
		"a pod is labelled":       {podChanged, pod, func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, false},
		"a Deployment has a pod":  {refusalChanged, &appsv1.Deployment{}, func(o client.Object) { o.(*appsv1.Deployment).Status.Replicas = 1 }, false},
		"its pod is refused": {refusalChanged, &appsv1.Deployment{}, func(o client.Object) {
			o.(*appsv1.Deployment).Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue}}
		}, true},
		"a room is going":         {inNamespaces, ours, func(o client.Object) { o.SetDeletionTimestamp(&metav1.Time{Time: noon}) }, true},
		"a player's namespace is": {inNamespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "challenge-1"}}, func(client.Object) {}, false},
		"a pod in a room changes": {inNamespaces, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ours.Name}}, func(client.Object) {}, true},
		"a player's pod changes":  {inNamespaces, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "challenge-1", Name: NamespacePrefix}}, func(client.Object) {}, false},
	} {
		after := tc.before.DeepCopyObject().(client.Object)
		tc.change(after)
		if got := tc.which.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What is judged by is kept, and nothing of what grows.
func TestTrim(t *testing.T) {
	n := newNode("1", image)
	n.Annotations = map[string]string{"a": "b"}
	n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: noon}}}
	n.Spec.ProviderID = "cloud"
	n.Status.Conditions[0].LastHeartbeatTime = metav1.Time{Time: noon}
	n.Status.Images[0].SizeBytes = 7
	TrimNode(n)
	if !listing(n)[image] || !view.IsReady(n) || takes(n, placement{}) || n.Annotations != nil || n.Spec.ProviderID != "" || !n.Status.Conditions[0].LastHeartbeatTime.IsZero() {
		t.Errorf("%+v", n)
	}
	for name, state := range map[string]corev1.ContainerState{
		"waiting":    {Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no"}},
		"terminated": {Terminated: &corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: nothing}},
		"running":    {Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: noon}}},
	} {
		pod := &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: image}}, HostUsers: ptr.To(false)},
			Status: corev1.PodStatus{
				Conditions:        []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "full"}, {Type: corev1.PodReady}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "sidecar"}, {Name: containerName, State: state, Image: image}},
			},
		}
		whole := checkPods(noon, []*corev1.Pod{pod}, "no pod", noon)
		TrimPod(pod)
		if got := checkPods(noon, []*corev1.Pod{pod}, "no pod", noon); got != whole || len(pod.Spec.Containers) > 0 || len(pod.Status.Conditions) != 1 || podstate.Scheduling(pod) != "full" {
			t.Errorf("%s: %+v, %+v", name, got, pod)
		}
	}
}
