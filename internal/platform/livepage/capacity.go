package livepage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bergctf/berg-operator/internal/berg/plan"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// trimNode reduces a node to its size and to the fields that decide whether it takes instances. The kubelet updates
// other fields often.
func trimNode(n *corev1.Node) *corev1.Node {
	kept := &corev1.Node{TypeMeta: n.TypeMeta}
	kept.Name, kept.UID, kept.ResourceVersion, kept.DeletionTimestamp = n.Name, n.UID, n.ResourceVersion, n.DeletionTimestamp
	kept.Spec.Unschedulable, kept.Spec.Taints = n.Spec.Unschedulable, n.Spec.Taints
	kept.Status.Allocatable = corev1.ResourceList{}
	for _, resourceName := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage} {
		if quantity, ok := n.Status.Allocatable[resourceName]; ok {
			kept.Status.Allocatable[resourceName] = quantity
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept
}

// seeNode changes nothing where only fields differ that the page does not show, so that heartbeats render no page.
func (b *Board) seeNode(object any) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	kept := trimNode(n)
	// It changes with each heartbeat, also where nothing else does.
	kept.ResourceVersion = ""
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.nodes[n.Name]; ok && equality.Semantic.DeepEqual(known, *kept) {
		return
	}
	b.nodes[n.Name] = *kept
	b.changed(b.options.Namespaces...)
}

// forgetNode also gets the last known object of an informer that has missed the deletion.
func (b *Board) forgetNode(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	n, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.nodes, n.Name)
	b.changed(b.options.Namespaces...)
}

// Capacity is the capacity of the cluster for instances and its use by all namespaces of the page.
type Capacity struct {
	view.Capacity
	// Reserve of each node, in percent, is for other pods.
	Reserve  int
	Measures []Measure
	// Growth is the recent increase of instances per minute.
	Growth float64
	// Limits are the limits that more instances would reach, the first one first.
	Limits []Limit
	// Command is the line with which to calculate for other numbers.
	Command string
}

// Measure is the use of one resource.
type Measure struct {
	What, Taken, Left, All string
	// Share is from 0 to 1.
	Share float64
}

// Limit is a limit in the forecast.
type Limit struct {
	What string
	// At is the number of instances that reaches it, with the mix of Challenges as it is now.
	At int
	// Percent is the used share of the limit.
	Percent int
	// When says when it is reached at the present growth.
	When string
	Do   string
}

const (
	// maxLimits is the number of limits that the page lists, and concern the percentage above which it names a remedy.
	maxLimits = 6
	concern   = 80
	// trend is the number of samples from which the growth is calculated.
	trend = 30
	// etcdMB is the default of --quota-backend-bytes.
	etcdMB = 2147
)

// capacityNow calculates the Capacity for the readers of a namespace. It is called with the lock held.
func (b *Board) capacityNow(namespace string) Capacity {
	cluster := view.Cluster{Reserve: b.options.NodeReserve, NodePorts: b.options.NodePorts, MaxInstances: b.operator.maxInstances}
	for _, name := range slices.Sorted(maps.Keys(b.nodes)) {
		cluster.Nodes = append(cluster.Nodes, b.nodes[name])
	}
	mix := map[string]int{}
	rows := make([]*view.Row, 0, len(b.rows))
	for _, r := range b.rows {
		rows = append(rows, &r.Row)
		mix[r.ChallengeID("")]++
	}
	var challenges []view.Challenge
	var shapes []plan.Shape
	weights := map[string]int{}
	for _, id := range slices.Sorted(maps.Keys(b.challenges)) {
		challenge := b.challenges[id]
		challenges = append(challenges, challenge)
		if challenge.Shape != nil && mix[id] > 0 {
			shape := *challenge.Shape
			shape.Weight = float64(mix[id])
			shapes = append(shapes, shape)
		}
		if challenge.Namespace == namespace && mix[id] > 0 {
			weights[challenge.Name] = mix[id]
		}
	}
	c := Capacity{Capacity: view.NewCapacity(cluster, rows, challenges), Reserve: b.options.NodeReserve, Command: planCommand(namespace, weights)}
	for _, h := range b.history {
		c.Growth += h.growth()
	}
	c.Measures = measures(c.Capacity)
	c.Limits = forecast(shapes, len(b.rows), c.Stock, c.Growth)
	return c
}

// freeCapacity says for how many more instances of a Challenge there is capacity, "" if nothing is known that limits them.
func (c Capacity) freeCapacity(challenge view.Challenge) string {
	if challenge.Frozen {
		return "none: frozen"
	}
	for _, h := range c.Headroom {
		if h.Namespace == challenge.Namespace && h.Challenge == challenge.Name {
			return h.String()
		}
	}
	return ""
}

// planCommand is the line that calculates for other numbers, with the mix of Challenges as it is now.
func planCommand(namespace string, mix map[string]int) string {
	var weights []string
	players := 0
	for name, n := range mix {
		weights = append(weights, view.Quote(name+"="+fmt.Sprint(n)))
		players += n
	}
	slices.Sort(weights)
	const limit = 20 // a longer line is for no person
	if len(weights) > limit {
		weights = nil
	}
	for n, w := range weights {
		weights[n] = " --weight " + w
	}
	return fmt.Sprintf("kubectl berg plan --players %d -n %s%s", max(100, 2*players), view.Quote(namespace), strings.Join(weights, ""))
}

// measures compares the resources that instances use with the total.
func measures(c view.Capacity) (all []Measure) {
	add := func(label string, amount view.Amount, text func(float64) string) {
		if amount.Total > 0 {
			left := max(0, amount.Total-amount.Used)
			all = append(all, Measure{label, text(amount.Used), text(left), text(amount.Total), min(1, amount.Used/amount.Total)})
		}
	}
	whole := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	add("CPU", c.CPU, func(v float64) string { return fmt.Sprintf("%.1f", v) })
	add("memory", c.Memory, func(v float64) string { return fmt.Sprintf("%.1f GiB", v/(1<<30)) })
	add("pods", c.Pods, whole)
	add("node ports", c.NodePorts, whole)
	add("instances", c.Instances, whole)
	return all
}

// forecast returns the limits that kubectl berg plan calculates for the current number of instances, with the time at
// which growth reaches them.
func forecast(shapes []plan.Shape, instances int, stock plan.Stock, growth float64) (all []Limit) {
	if instances == 0 {
		return nil
	}
	var node plan.Node
	if len(stock.Nodes) > 0 {
		node = stock.Smallest()
	}
	result, err := plan.Calculate(shapes, plan.Event{Players: instances, Active: instances}, node,
		plan.Limits{NodePorts: stock.NodePorts, EtcdMB: etcdMB, Nodes: len(stock.Nodes), Instances: stock.Instances})
	if err != nil { // there is no Challenge of them any more
		return nil
	}
	for _, limit := range result.Breaks[:min(len(result.Breaks), maxLimits)] {
		l := Limit{What: limit.What, At: limit.At, Percent: int(limit.Share*100 + 0.5), When: reached(instances, limit.At, growth)}
		if l.Percent > concern {
			l.Do = limit.Do
		}
		all = append(all, l)
	}
	return all
}

// reached says when the number of instances reaches a limit. It gives no time beyond a day, because the growth is too
// uncertain.
func reached(now, limit int, growth float64) string {
	switch minutes := float64(limit-now) / growth; {
	case limit <= now:
		return "now"
	case growth <= 0, minutes > 24*60:
		return "–"
	default:
		return "in " + span(time.Duration(minutes*float64(time.Minute)))
	}
}

// growth is by how many instances a minute a namespace has more than half an hour ago, or than at the first sample.
func (h *history) growth() float64 {
	last := len(h.samples) - 1
	if last < 1 {
		return 0
	}
	first := max(0, last-trend)
	return float64(h.samples[last].all()-h.samples[first].all()) / float64(last-first)
}

func (s Sample) all() int { return s.Running + s.Waiting + s.Failed }
