package plan

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Stock is the capacity of a cluster for instances. A field that is 0, and no node, is not known or has no limit.
type Stock struct {
	Nodes []Node
	// Free is what all pods leave of each node. It is nil where pods cannot be read.
	Free []Free
	// NodePorts is the size of --service-node-port-range, Instances is CHALLENGE_MAX_INSTANCES.
	NodePorts, Instances int
}

// Use is an amount of a cluster's capacity: the usage of instances, or the whole capacity. CPU is in CPUs, Memory and Disk in bytes.
type Use struct {
	Instances, Pods, NodePorts int
	CPU, Memory, Disk          float64
	// loads counts the pods by their requests.
	loads map[load]int
}

// Add adds n instances of a shape.
func (u *Use) Add(s Shape, n int) {
	u.Instances += n
	u.Pods += n * s.Containers
	u.NodePorts += n * s.NodePorts
	u.CPU += float64(n) * s.CPU.AsApproximateFloat64()
	u.Memory += float64(n) * s.Memory.AsApproximateFloat64()
	u.Disk += float64(n) * s.Disk.AsApproximateFloat64()
	if u.loads == nil {
		u.loads = map[load]int{}
	}
	for _, p := range s.pods {
		u.loads[p] += n
	}
}

// Total is all that a cluster has, as if its nodes were one.
func (s Stock) Total() (all Use) {
	all.Instances, all.NodePorts = s.Instances, s.NodePorts
	for _, n := range s.Nodes {
		all.Pods += max(0, n.Pods-n.Overhead)
		all.CPU += n.CPU.AsApproximateFloat64()
		all.Memory += n.Memory.AsApproximateFloat64()
		all.Disk += n.Disk.AsApproximateFloat64()
	}
	return all
}

// Smallest is the node with the fewest CPUs. There must be one.
func (s Stock) Smallest() Node {
	return slices.MinFunc(s.Nodes, func(a, b Node) int { return a.CPU.Cmp(b.CPU) })
}

// maxHeadroom is up to how many further instances are counted on nodes whose pods are known.
const maxHeadroom = 1000

// FreeCapacity is for how many more instances there is capacity.
type FreeCapacity struct {
	// Least fit however the scheduler has spread the existing pods; more than Most do not. Most is at most 1000 where pods are known.
	Least int `json:"least"`
	Most  int `json:"instances"`
	// By is the limit that is reached then, "" if none is below 1000.
	By string `json:"by,omitempty"`
}

func (r FreeCapacity) String() string {
	if r.Least == r.Most {
		return fmt.Sprintf("%d (%s)", r.Most, r.By)
	}
	return fmt.Sprintf("%d to %d (%s)", r.Least, r.Most, r.By)
}

// noNode says that a pod is larger than each node.
const noNode = "the size of a node"

// CalculateFreeCapacity returns for how many more instances of a shape there is capacity. own is how many there are of it, taken what all take. Where pods
// cannot be read, it is not known which nodes they are on, and the result is a range. limited is false if nothing that is known limits them.
func CalculateFreeCapacity(s Shape, own int, stock Stock, taken Use) (free FreeCapacity, limited bool) {
	left := math.Inf(1)
	limit := func(label string, all, used, each float64) {
		if all <= 0 || each <= 0 {
			return
		}
		if n := max(0, math.Floor((all-used)/each+margin)); n < left {
			left, free.By = n, label
		}
	}
	limit("CHALLENGE_MAX_INSTANCES", float64(stock.Instances), float64(taken.Instances), 1)
	limit("spec.maxInstances", float64(s.MaxInstances), float64(own), 1)
	limit("node ports", float64(stock.NodePorts), float64(taken.NodePorts), float64(s.NodePorts))
	if stock.Free != nil {
		if n, constraint := Headroom(s, stock.Free, maxHeadroom); float64(n) < left {
			left, free.By = float64(n), constraint
		}
		free.Most, free.Least = int(left), int(left)
		return free, true
	}
	if len(stock.Nodes) > 0 {
		all := stock.Total()
		limit("pods", float64(all.Pods), float64(taken.Pods), float64(s.Containers))
		limit("CPU", all.CPU, taken.CPU, s.CPU.AsApproximateFloat64())
		limit("memory", all.Memory, taken.Memory, s.Memory.AsApproximateFloat64())
		limit("disk", all.Disk, taken.Disk, s.Disk.AsApproximateFloat64())
		for _, p := range s.pods {
			if n := float64(onEmpty(p, stock.Nodes)); n < left {
				left, free.By = n, noNode
			}
		}
	}
	if math.IsInf(left, 1) {
		return FreeCapacity{}, false
	}
	free.Most = int(left)
	free.Least = free.Most
	if len(stock.Nodes) > 0 {
		for _, p := range s.pods {
			free.Least = min(free.Least, certain(s, p, stock.Nodes, taken.loads, free.Most))
		}
	}
	return free, true
}

// margin is the maximum error of sums of fractions.
const margin = 1e-9

// dimensions are the requests of a pod: CPU, memory, disk, and at podsAt a pod.
type dimensions [4]float64

// podsAt is the dimension that every node has: a size of 0 in any other dimension is not known.
const podsAt = 3

func (p load) dimensions() dimensions { return dimensions{p.cpu, p.memory, p.disk, 1} }

// leaving returns the maximum usage of a node with which a pod still fits. A field that is below 0 is not known. fits is false if
// the node is too small.
func (n Node) leaving(p load) (left dimensions, fits bool) {
	size := nodeCapacity(n)
	for d, available := range (dimensions{size.cpu, size.memory, size.disk, float64(max(0, n.Pods-n.Overhead))}) {
		needs := p.dimensions()[d]
		switch {
		case available <= 0 && d != podsAt:
			left[d] = -1
		case needs > available*(1+margin):
			return left, false
		default:
			left[d] = max(0, available-needs)
		}
	}
	return left, true
}

// onEmpty returns how many pods fit on nodes that have no others.
func onEmpty(p load, nodes []Node) (n int) {
	for _, node := range nodes {
		left, fits := node.leaving(p)
		if !fits {
			continue
		}
		extra := math.Inf(1)
		for d, needs := range p.dimensions() {
			if left[d] >= 0 && needs > 0 {
				extra = min(extra, math.Floor(left[d]/needs+margin))
			}
		}
		n += 1 + int(extra)
	}
	return n
}

// certain returns how many instances of a shape, limit at most, can place this pod in every case, however all other pods are
// spread.
//
// A node is closed for the pod when its usage exceeds the result of leaving. There are two ways to show that not all nodes are
// closed:
//   - Weigh a node by the smallest part of what the largest ones may have taken, and a pod by the largest part of that which it
//     takes. What a pod takes of any node never weighs more than the pod. So while all pods weigh no more than all nodes, one is open.
//   - Let all that pods take of one dimension close as many nodes as it can. So while all dimensions together close fewer nodes than
//     there are, one is open.
func certain(s Shape, p load, nodes []Node, taken map[load]int, limit int) int {
	var each []dimensions
	var needs [len(dimensions{})][]float64 // what closes a node, by dimension, the smallest first
	largest := dimensions{-1, -1, -1, -1}
	for _, node := range nodes {
		left, fits := node.leaving(p)
		if !fits {
			continue
		}
		each = append(each, left)
		for d := range left {
			largest[d] = max(largest[d], left[d])
			if left[d] >= 0 {
				needs[d] = append(needs[d], left[d])
			}
		}
	}
	for d := range needs {
		slices.Sort(needs[d])
	}
	total := 0.0
	for _, left := range each {
		total += nodeWeight(left, largest)
	}
	// rest are the other pods without the new instances and without this pod, extra the pods of one new instance.
	var rest, extra pile
	for q, n := range taken {
		rest.add(q, float64(n), largest)
	}
	for _, q := range s.pods {
		extra.add(q, 1, largest)
	}
	rest.add(p, -1, largest)
	return sort.Search(limit, func(n int) bool { // whether the last of n+1 instances may find no node
		all := float64(n + 1)
		if rest.weight+all*extra.weight <= total*(1+margin) {
			return false
		}
		closed := 0
		for d := range needs {
			closed += closedBy(rest.sum[d]+all*extra.sum[d], needs[d])
		}
		return closed >= len(each)
	})
}

// pile is a number of pods: their weight, and the sum of their requests.
type pile struct {
	weight float64
	sum    dimensions
}

func (o *pile) add(p load, n float64, largest dimensions) {
	const whole = 1 + 1e-6 // a pod alone closes one whole node at most
	weight := 0.0
	for d, takes := range p.dimensions() {
		o.sum[d] += n * takes
		if takes > 0 && largest[d] >= 0 {
			weight = max(weight, min(whole, takes/largest[d]))
		}
	}
	o.weight += n * weight
}

func nodeWeight(left, largest dimensions) float64 {
	weight := 1.0
	for d := range left {
		if left[d] >= 0 && largest[d] > 0 {
			weight = min(weight, left[d]/largest[d])
		}
	}
	return weight
}

// closedBy returns how many nodes an amount closes that need more than these, the smallest first.
func closedBy(amount float64, needs []float64) (n int) {
	for _, need := range needs {
		if amount <= need*(1+margin) {
			break
		}
		amount -= need
		n++
	}
	return n
}
