package plan

import (
	"math"
	"slices"
)

// Stock is what a cluster has for instances. A field that is 0, and no node, is not known or has no limit.
type Stock struct {
	Nodes []Node
	// NodePorts is the size of --service-node-port-range, Instances is CHALLENGE_MAX_INSTANCES.
	NodePorts, Instances int
}

// Use is an amount of what a cluster has: what instances take of it, or all of it. CPU is in CPUs, Memory in bytes.
type Use struct {
	Instances, Pods, NodePorts int
	CPU, Memory                float64
}

// Add adds n instances of a shape.
func (u *Use) Add(s Shape, n int) {
	u.Instances += n
	u.Pods += n * s.Containers
	u.NodePorts += n * s.NodePorts
	u.CPU += float64(n) * s.CPU.AsApproximateFloat64()
	u.Memory += float64(n) * s.Memory.AsApproximateFloat64()
}

// Total is all that a cluster has, as if its nodes were one.
func (s Stock) Total() (all Use) {
	all.Instances, all.NodePorts = s.Instances, s.NodePorts
	for _, n := range s.Nodes {
		all.Pods += max(0, n.Pods-n.Overhead)
		all.CPU += n.CPU.AsApproximateFloat64()
		all.Memory += n.Memory.AsApproximateFloat64()
	}
	return all
}

// Smallest is the node with the fewest CPUs. There must be one.
func (s Stock) Smallest() Node {
	return slices.MinFunc(s.Nodes, func(a, b Node) int { return a.CPU.Cmp(b.CPU) })
}

// Room returns how many more instances of a shape there is room for, and what ends it. own is how many there are of it, taken
// what all take. limited is false if nothing that is known limits them. What remains on each node is not known: nodes count as
// one, so that fewer than this number may find a place.
func Room(s Shape, own int, has Stock, taken Use) (room int, by string, limited bool) {
	left := math.Inf(1)
	limit := func(what string, all, used, each float64) {
		if all <= 0 || each <= 0 {
			return
		}
		if n := max(0, math.Floor((all-used)/each+1e-9)); n < left {
			left, by = n, what
		}
	}
	limit("CHALLENGE_MAX_INSTANCES", float64(has.Instances), float64(taken.Instances), 1)
	limit("maxInstances", float64(s.MaxInstances), float64(own), 1)
	limit("node ports", float64(has.NodePorts), float64(taken.NodePorts), float64(s.NodePorts))
	if len(has.Nodes) > 0 {
		all := has.Total()
		limit("pods", float64(all.Pods), float64(taken.Pods), float64(s.Containers))
		limit("CPU", all.CPU, taken.CPU, s.CPU.AsApproximateFloat64())
		limit("memory", all.Memory, taken.Memory, s.Memory.AsApproximateFloat64())
		if !slices.ContainsFunc(has.Nodes, func(n Node) bool { return impossible([]Shape{s}, n) == "" }) && s.Weight > 0 {
			left, by = 0, "the size of a node"
		}
	}
	if math.IsInf(left, 1) {
		return 0, "", false
	}
	return int(left), by, true
}
