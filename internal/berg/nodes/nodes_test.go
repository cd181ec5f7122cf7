package nodes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// node returns one whose runtimes support user namespaces or not. The first is that of pods without a RuntimeClass.
func node(runtimes ...bool) corev1.Node {
	n := corev1.Node{}
	for i, can := range runtimes {
		n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: []string{"", "runc", "gvisor"}[i], Features: &corev1.NodeRuntimeHandlerFeatures{UserNamespaces: ptr.To(can)}})
	}
	return n
}

func with(n corev1.Node, modify func(*corev1.Node)) corev1.Node {
	modify(&n)
	return n
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func TestSupport(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes []corev1.Node
		want  Support
	}{
		"no nodes":                    {nil, Support{}},
		"one that can":                {[]corev1.Node{node(true, true)}, Support{All: true}},
		"one that says nothing":       {[]corev1.Node{node()}, Support{None: true}},
		"a runtime without features":  {[]corev1.Node{{Status: corev1.NodeStatus{RuntimeHandlers: []corev1.NodeRuntimeHandler{{}}}}}, Support{None: true}},
		"one that cannot":             {[]corev1.Node{node(false)}, Support{None: true}},
		"another runtime cannot":      {[]corev1.Node{node(true, false)}, Support{All: true}},
		"only another runtime can":    {[]corev1.Node{node(false, true)}, Support{}},
		"one of two":                  {[]corev1.Node{node(true), node()}, Support{}},
		"the other is cordoned":       {[]corev1.Node{node(true), with(node(), cordoned)}, Support{All: true}},
		"the only one is cordoned":    {[]corev1.Node{with(node(), cordoned)}, Support{}},
		"the other is deleted":        {[]corev1.Node{node(true), with(node(), func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })}, Support{All: true}},
		"the other is for others":     {[]corev1.Node{node(), with(node(true), tainted("gpu", corev1.TaintEffectNoSchedule))}, Support{None: true}},
		"the other is not preferred":  {[]corev1.Node{node(true), with(node(), tainted("gpu", corev1.TaintEffectPreferNoSchedule))}, Support{}},
		"the other does not answer":   {[]corev1.Node{node(true), with(node(), tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute))}, Support{}},
		"the capable one is not here": {[]corev1.Node{node(), with(node(true), cordoned)}, Support{None: true}},
	} {
		if got := ComputeSupport(tc.nodes); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		trimmed := make([]corev1.Node, len(tc.nodes))
		for i := range tc.nodes {
			trimmed[i] = *tc.nodes[i].DeepCopy()
			Trim(&trimmed[i])
		}
		if got := ComputeSupport(trimmed); got != tc.want {
			t.Errorf("%s: %+v after it was trimmed, want %+v", name, got, tc.want)
		}
	}
}

func TestTrimKeepsLittle(t *testing.T) {
	n := with(node(true), func(n *corev1.Node) {
		n.Labels, n.Annotations = map[string]string{"a": "b"}, map[string]string{"a": "b"}
		n.Status.Images = []corev1.ContainerImage{{Names: []string{"a"}}}
		n.Status.RuntimeHandlers[0].Features.RecursiveReadOnlyMounts = ptr.To(true)
	})
	Trim(&n)
	if want := node(true); n.Labels != nil || n.Annotations != nil || n.Status.Images != nil || n.Status.RuntimeHandlers[0].Features.RecursiveReadOnlyMounts != nil || ComputeSupport([]corev1.Node{n}) != ComputeSupport([]corev1.Node{want}) {
		t.Errorf("%+v", n)
	}
}

func TestCheck(t *testing.T) {
	nested := []bergv1.Container{{}, {Sandbox: bergv1.SandboxNested}}
	for name, tc := range map[string]struct {
		support    Support
		containers []bergv1.Container
		want       bool
	}{
		"a jail, no node":         {Support{None: true}, nested, true},
		"a jail, one node":        {Support{}, nested, false},
		"a jail, all nodes":       {Support{All: true}, nested, false},
		"no jail, no node either": {Support{None: true}, nested[:1], false},
	} {
		p := tc.support.Check("Condition", tc.containers)
		if (p != nil) != tc.want {
			t.Errorf("%s: %+v", name, p)
		}
		if p != nil && (p.Condition != "Condition" || p.Reason != bergv1.ReasonNoSuitableNode || p.Class != outcome.Blocked || !strings.HasPrefix(p.Message, "spec.containers[1].sandbox: ")) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestApply(t *testing.T) {
	for name, tc := range map[string]struct {
		set     config.UserNamespaces
		support Support
		want    config.UserNamespaces
	}{
		"auto, all":   {config.UserNamespacesAuto, Support{All: true}, config.UserNamespacesPlain},
		"auto, some":  {config.UserNamespacesAuto, Support{}, config.UserNamespacesFalse},
		"true, none":  {config.UserNamespacesTrue, Support{None: true}, config.UserNamespacesTrue},
		"false, all":  {config.UserNamespacesFalse, Support{All: true}, config.UserNamespacesFalse},
		"unset, all":  {"", Support{All: true}, ""},
		"auto, none":  {config.UserNamespacesAuto, Support{None: true}, config.UserNamespacesFalse},
		"true, all":   {config.UserNamespacesTrue, Support{All: true}, config.UserNamespacesTrue},
		"false, none": {config.UserNamespacesFalse, Support{None: true}, config.UserNamespacesFalse},
	} {
		if got := tc.support.Apply(config.Challenge{Defaults: config.Defaults{UserNamespaces: tc.set}}).UserNamespaces; got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestWatched(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  config.Challenge
		want bool
	}{
		"neither":   {config.Challenge{Defaults: config.Defaults{UserNamespaces: config.UserNamespacesTrue}}, false},
		"auto":      {config.Challenge{Defaults: config.Defaults{UserNamespaces: config.UserNamespacesAuto}}, true},
		"a profile": {config.Challenge{Defaults: config.Defaults{NestedSeccompProfile: "a.json"}}, true},
	} {
		if got := Watched(tc.cfg); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after corev1.Node
		want          bool
	}{
		"a heartbeat":              {node(true), with(node(true), func(n *corev1.Node) { n.ResourceVersion = "2" }), false},
		"an update":                {node(), node(true), true},
		"one runtime of two":       {node(true, true), node(false, true), true},
		"some, then cordoned":      {node(false, true), with(node(false, true), cordoned), true},
		"cordoned":                 {node(), with(node(), cordoned), true},
		"the node does not answer": {node(true), with(node(true), tainted(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)), false},
	} {
		if got := Changed.Update(event.UpdateEvent{ObjectOld: &tc.before, ObjectNew: &tc.after}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	n := node(true)
	if !Changed.Create(event.CreateEvent{Object: &n}) || !Changed.Delete(event.DeleteEvent{Object: &n}) {
		t.Error("a node comes or goes, and no event passes")
	}
}
