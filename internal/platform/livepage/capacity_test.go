package livepage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func aNode(name, cpu string, change func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}
	if change != nil {
		change(n)
	}
	return n
}

func storeTrimmed(t *testing.T, in func(any), object any) {
	t.Helper()
	kept, err := trim(object)
	if err != nil {
		t.Fatal(err)
	}
	in(kept)
}

func TestCapacityAndForecast(t *testing.T) {
	b, server := served(t, clocktesting.NewFakeClock(begin))
	web := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "web", Generation: 1}}
	web.Spec.Containers = []bergv1.Container{{Hostname: "web", Ports: []bergv1.Port{{Port: 80, Type: bergv1.PublicPort}}}}
	storeTrimmed(t, b.seeOther, web)
	if _, _, page := get(t, server.URL+"/live/"); !strings.Contains(page, "no node is known that takes instances") {
		t.Error("without nodes the page does not say so")
	}
	storeTrimmed(t, b.seeNode, aNode("a", "2", nil))
	storeTrimmed(t, b.seeNode, aNode("b", "2", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	storeTrimmed(t, b.seeNode, aNode("c", "2", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }))
	storeTrimmed(t, b.seeNode, aNode("d", "2", func(n *corev1.Node) { n.Status.Conditions = nil }))
	for n := range 10 {
		i := anInstance(fmt.Sprint("i", n), bergv1.PhaseRunning, "")
		i.Status.StartedAt = &metav1.Time{Time: begin}
		put(t, b, i)
	}
	queued := anInstance("queued", bergv1.PhasePending, bergv1.CauseQueued)
	put(t, b, queued) // takes nothing yet

	b.mu.Lock()
	c := b.capacityNow("berg")
	b.mu.Unlock()
	if c.Ready != 1 || c.Nodes != 4 {
		t.Errorf("%d of %d nodes take instances", c.Ready, c.Nodes)
	}
	got := fmt.Sprint(c.Measures)
	for _, want := range []string{"{CPU 1.0 1.0 2.0 0.4", "{memory 1.2 GiB 6.8 GiB 8.0 GiB 0.15625}", "{pods 10 100 110 ", "{node ports 10 2758 2768 "} {
		if !strings.Contains(got, want) {
			t.Errorf("%s does not have %s", got, want)
		}
	}
	if len(c.Limits) == 0 || !strings.HasPrefix(c.Limits[0].What, "nodes (CPU") || c.Limits[0].At != 20 || c.Limits[0].Percent != 55 || c.Limits[0].When != "–" {
		t.Errorf("%+v", c.Limits)
	}
	if want := "kubectl berg plan --players 100 -n berg --weight web=11"; c.Command != want {
		t.Errorf("%s, not %s", c.Command, want)
	}

	// Two more a minute.
	for n := range 2 * trend {
		b.sample(begin.Add(time.Duration(n) * time.Minute))
		b.ensureHistory("berg").samples[n].Running = 2 * n
	}
	b.mu.Lock()
	c = b.capacityNow("berg")
	b.mu.Unlock()
	if c.Growth != 2 || c.Limits[0].When != "in 4 min" {
		t.Errorf("growth %v, %+v", c.Growth, c.Limits[0])
	}
	_, _, page := get(t, server.URL+"/live/")
	for _, want := range []string{"10 (CPU)", "on 1 node</caption>", "kubectl berg status", "nodes (CPU", "kubectl berg plan --players 100"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	b.forgetNode(aNode("a", "2", nil))
	web.Annotations = map[string]string{bergv1.AnnotationFrozen: "now"}
	storeTrimmed(t, b.seeOther, web)
	if _, _, page := get(t, server.URL+"/live/"); !strings.Contains(page, "none: frozen") || strings.Contains(page, "on 1 node") {
		t.Error("a node that is gone, or a Challenge that is frozen, is not seen")
	}
}

// On which nodes pods are is not known, nor what other pods reserve: the page says what is certain, and what it leaves for them.
func TestRoomIsARange(t *testing.T) {
	b, server := served(t, clocktesting.NewFakeClock(begin))
	b.options.NodeReserve = 10
	web := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "web", Generation: 1}}
	request := bergv1.Resources{CPU: ptr.To(bergv1.Amount("800m"))}
	web.Spec.Containers = []bergv1.Container{{Hostname: "web", ResourceRequests: &request}}
	storeTrimmed(t, b.seeOther, web)
	for _, name := range []string{"a", "b", "c"} {
		storeTrimmed(t, b.seeNode, aNode(name, "2", nil))
	}
	small := web.DeepCopy()
	small.Name, small.Spec.Containers[0].ResourceRequests = "small", nil
	storeTrimmed(t, b.seeOther, small)
	for n := range 12 {
		i := anInstance(fmt.Sprint("i", n), bergv1.PhaseRunning, "")
		i.Spec.ChallengeRef.Name = "small"
		i.Status.StartedAt = &metav1.Time{Time: begin}
		put(t, b, i)
	}
	_, _, page := get(t, server.URL+"/live/")
	for _, want := range []string{
		"on 3 nodes, without 10 % of each for other pods", `<td class="number">5.4</td>`,
		"3 to 5 (CPU)", // if 0.4 of each node is taken, one fits on each
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestWhenALimitIsReached(t *testing.T) {
	for _, c := range []struct {
		now, at int
		growth  float64
		want    string
	}{{10, 10, 1, "now"}, {10, 5, -1, "now"}, {10, 20, 0, "–"}, {10, 20, -3, "–"}, {10, 20, 2, "in 5 min"}, {10, 130, 1, "in 2 h 0 min"}, {10, 100000, 1, "–"}} {
		if got := reached(c.now, c.at, c.growth); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// Only a change of what the page shows of a node is one.
func TestANodeThatReportsTheSameIsNoChange(t *testing.T) {
	b := newBoard(options, clocktesting.NewFakeClock(begin))
	storeTrimmed(t, b.seeNode, aNode("a", "2", nil))
	before := b.Read("berg", 0).Version
	storeTrimmed(t, b.seeNode, aNode("a", "2", func(n *corev1.Node) { n.ResourceVersion, n.Annotations = "2", map[string]string{"a": "b"} }))
	if after := b.Read("berg", 0).Version; after != before {
		t.Error("a report of a node changes the page")
	}
	storeTrimmed(t, b.seeNode, aNode("a", "4", nil))
	if after := b.Read("berg", 0).Version; after == before {
		t.Error("a larger node does not change the page")
	}
}
