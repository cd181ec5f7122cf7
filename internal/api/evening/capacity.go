package evening

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// nodeState is what the page knows of a node.
type nodeState struct {
	size plan.Node
	// open: pods of instances may start on it.
	open bool
}

func (n nodeState) same(o nodeState) bool {
	return n.open == o.open && n.size.Pods == o.size.Pods && n.size.CPU.Cmp(o.size.CPU) == 0 && n.size.Memory.Cmp(o.size.Memory) == 0 &&
		n.size.Disk.Cmp(o.size.Disk) == 0
}

// trimNode keeps of a node what it has room for, and whether it is open to instances.
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

func newNodeState(n *corev1.Node) nodeState {
	allocatable := n.Status.Allocatable
	s := nodeState{size: plan.Node{CPU: *allocatable.Cpu(), Memory: *allocatable.Memory(), Disk: *allocatable.StorageEphemeral(), Pods: int(allocatable.Pods().Value())}}
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Status == corev1.ConditionTrue })
	closed := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
	s.open = ready && !closed && !n.Spec.Unschedulable && n.DeletionTimestamp == nil
	return s
}

// less returns the size without a part, in percent, that is for other pods.
func (n nodeState) less(percent int) plan.Node {
	part := func(share resource.Quantity) resource.Quantity {
		all := share.MilliValue()
		return *resource.NewMilliQuantity(all-all/100*int64(percent), share.Format)
	}
	return plan.Node{CPU: part(n.size.CPU), Memory: part(n.size.Memory), Disk: part(n.size.Disk), Pods: n.size.Pods * (100 - percent) / 100}
}

func (b *Board) seeNode(object any) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	state := newNodeState(n)
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.nodes[n.Name]; ok && known.same(state) {
		return
	}
	b.nodes[n.Name] = state
	b.changed(b.options.Namespaces...)
}

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

// Capacity is what the cluster has for instances, and what they take, of all namespaces of the page.
type Capacity struct {
	// Nodes is how many take instances; 0: none does, or they cannot be read. Reserve of each, in percent, is for other pods.
	Nodes, Reserve int
	Measures       []Measure
	// Growth is by how many instances a minute they became more lately.
	Growth float64
	// Limits are those that more instances would reach, the first one first.
	Limits []Limit
	// Command is the line with which to calculate for other numbers.
	Command string
	// stock and taken are what room is calculated from.
	stock plan.Stock
	taken plan.Use
}

// Measure is how much is taken of something.
type Measure struct {
	What, Taken, Left, All string
	// Share is from 0 to 1.
	Share float64
}

// Limit is one of the forecast.
type Limit struct {
	What string
	// At is the number of instances that reaches it, with the mix of Challenges as it is now.
	At int
	// Share of it that is used, in percent.
	Percent int
	// When says when it is reached at the present growth.
	When string
	Do   string
}

const (
	// maxLimits is how many limits the page lists, and concern the percentage above which it says what to do.
	maxLimits = 6
	concern   = 80
	// trend is how many samples the growth is taken from.
	trend = 30
	// etcdMB is the default of --quota-backend-bytes.
	etcdMB = 2147
)

// capacityNow calculates the Capacity for the readers of a namespace. It is called with the lock held.
func (b *Board) capacityNow(namespace string) Capacity {
	c := Capacity{stock: plan.Stock{NodePorts: b.options.NodePorts, Instances: b.options.MaxInstances}}
	for _, n := range b.nodes {
		if n.open {
			c.stock.Nodes = append(c.stock.Nodes, n.less(b.options.NodeReserve))
		}
	}
	c.Nodes, c.Reserve = len(c.stock.Nodes), b.options.NodeReserve
	mix := map[types.NamespacedName]int{}
	for _, r := range b.rows {
		key := types.NamespacedName{Namespace: r.Namespace, Name: r.Challenge}
		mix[key]++
		if shape := b.challenges[key].shape; shape != nil && r.Holds {
			c.taken.Add(*shape, 1)
		} else if r.Holds {
			c.taken.Instances++
		}
	}
	for _, h := range b.history {
		c.Growth += h.growth()
	}
	c.Measures = measures(c.stock, c.taken)
	c.Limits = forecast(b.shapes(mix), len(b.rows), c.stock, c.Growth)
	c.Command = planCommand(namespace, mix)
	return c
}

// shapes returns those of all Challenges, with the number of their instances as weights. It is called with the lock held.
func (b *Board) shapes(mix map[types.NamespacedName]int) (all []plan.Shape) {
	for key, c := range b.challenges {
		if c.shape != nil && mix[key] > 0 {
			shape := *c.shape
			shape.Weight = float64(mix[key])
			all = append(all, shape)
		}
	}
	slices.SortFunc(all, func(a, b plan.Shape) int { return cmp.Compare(a.Challenge, b.Challenge) })
	return all
}

// planCommand is the line that calculates for other numbers, with the mix of Challenges as it is now.
func planCommand(namespace string, mix map[types.NamespacedName]int) string {
	var weights []string
	players := 0
	for key, n := range mix {
		if key.Namespace == namespace {
			weights = append(weights, quoted(key.Name+"="+fmt.Sprint(n)))
			players += n
		}
	}
	slices.Sort(weights)
	const most = 20 // a longer line is for no person
	if len(weights) > most {
		weights = nil
	}
	for n, w := range weights {
		weights[n] = " --weight " + w
	}
	return fmt.Sprintf("kubectl berg plan --players %d -n %s%s", max(100, 2*players), quoted(namespace), strings.Join(weights, ""))
}

// measures compares what instances take with what there is.
func measures(stock plan.Stock, taken plan.Use) (all []Measure) {
	total := stock.Total()
	add := func(label string, capacity, used float64, text func(float64) string) {
		if capacity <= 0 {
			return
		}
		all = append(all, Measure{label, text(used), text(max(0, capacity-used)), text(capacity), min(1, used/capacity)})
	}
	whole := func(v float64) string { return fmt.Sprintf("%.0f", v) }
	add("CPU", total.CPU, taken.CPU, func(v float64) string { return fmt.Sprintf("%.1f", v) })
	add("memory", total.Memory, taken.Memory, func(v float64) string { return fmt.Sprintf("%.1f GiB", v/(1<<30)) })
	add("pods", float64(total.Pods), float64(taken.Pods), whole)
	add("node ports", float64(total.NodePorts), float64(taken.NodePorts), whole)
	add("instances", float64(total.Instances), float64(taken.Instances), whole)
	return all
}

// forecast is what kubectl berg plan says of as many instances as there are, and when more of them reach a limit.
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

// reached says when a number of instances is there. A day is as far as it looks.
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

// trimShape keeps of the spec of a Challenge what its instances need of a cluster: no flag, no variable, no command.
func trimShape(spec *bergv1.ChallengeSpec) (kept bergv1.ChallengeSpec) {
	kept.MaxInstances = spec.MaxInstances
	for _, c := range spec.Containers {
		container := bergv1.Container{Hostname: c.Hostname, ResourceRequests: c.ResourceRequests, ResourceLimits: c.ResourceLimits}
		for _, p := range c.Ports {
			container.Ports = append(container.Ports, bergv1.Port{Port: p.Port, Type: p.Type, Protocol: p.Protocol})
		}
		if f := c.DynamicFlag; f != nil { // the files that hold it are objects
			container.DynamicFlag = &bergv1.DynamicFlag{}
			if f.Content != nil {
				container.DynamicFlag.Content = &bergv1.FlagFile{}
			}
			if f.Executable != nil {
				container.DynamicFlag.Executable = &bergv1.FlagFile{}
			}
		}
		kept.Containers = append(kept.Containers, container)
	}
	return kept
}
