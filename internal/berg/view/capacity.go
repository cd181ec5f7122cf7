package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// Cluster has the known facts about a cluster that instances run in.
type Cluster struct {
	Nodes []corev1.Node
	// Reserved has the requests of all pods on each node, and Pods their number, where pods can be read.
	Reserved map[string]corev1.ResourceList
	Pods     map[string]int
	// Reserve is the share of each node, in percent, that is left for other pods where pods cannot be read.
	Reserve int
	// NodePorts is the number that the API server has, 0 if unknown. UsedNodePorts is the number that Services use, nil
	// where Services cannot be read.
	NodePorts     int
	UsedNodePorts *int
	// MaxInstances is CHALLENGE_MAX_INSTANCES, 0 for no limit.
	MaxInstances int
	// Home is the namespace of the Challenges of instances that name none; "": the namespace of the instance.
	Home string
}

// Amount is the used and the total amount of a resource. Total is 0 if there is no limit, or none is known.
type Amount struct {
	Used  float64 `json:"used"`
	Total float64 `json:"total"`
}

// Capacity is the capacity of a cluster for instances. CPU is in cores, Memory in bytes. The used amounts are the requests
// of pods; where pods cannot be read, the requests of instances.
type Capacity struct {
	// Nodes is the number of nodes, Ready the number of nodes that take instances.
	Nodes     int    `json:"nodes"`
	Ready     int    `json:"readyNodes"`
	Pods      Amount `json:"pods"`
	CPU       Amount `json:"cpu"`
	Memory    Amount `json:"memory"`
	NodePorts Amount `json:"nodePorts"`
	Instances Amount `json:"instances"`
	// Headroom says for how many more instances of each Challenge there is capacity, the smallest number first.
	Headroom []Headroom `json:"headroom,omitempty"`
	// Stock is the input of the calculation.
	Stock plan.Stock `json:"-"`
}

// Headroom says for how many more instances of a Challenge there is capacity. A Challenge whose instances cannot start has
// none.
type Headroom struct {
	Namespace string `json:"namespace"`
	Challenge string `json:"challenge"`
	plan.FreeCapacity
}

// NewCapacity calculates the capacity of a cluster with instances of Challenges. The Challenges have their shapes. Where pods
// cannot be read, only the pods of instances are counted.
func NewCapacity(c Cluster, rows []*Row, challenges []Challenge) Capacity {
	v := Capacity{Nodes: len(c.Nodes), Stock: plan.Stock{NodePorts: c.NodePorts, Instances: c.MaxInstances}}
	if c.Pods != nil {
		v.Stock.Free = []plan.Free{} // known, also without a node
	}
	for _, n := range SelectNodes(c.Nodes) {
		v.Ready++
		v.Stock.Nodes = append(v.Stock.Nodes, NodeSize(&n, c.Reserve))
		if c.Pods != nil {
			v.Stock.Free = append(v.Stock.Free, plan.NewFree(n.Status.Allocatable, c.Reserved[n.Name], c.Pods[n.Name]))
			v.Pods.Used += float64(c.Pods[n.Name])
			reserved := c.Reserved[n.Name]
			v.CPU.Used += reserved.Cpu().AsApproximateFloat64()
			v.Memory.Used += reserved.Memory().AsApproximateFloat64()
		}
	}
	taken, own := use(rows, challenges, c.Home)
	if c.Pods == nil {
		v.Pods.Used, v.CPU.Used, v.Memory.Used = float64(taken.Pods), taken.CPU, taken.Memory
	}
	if c.UsedNodePorts != nil {
		taken.NodePorts = *c.UsedNodePorts
	}
	total := v.Stock.Total()
	v.Pods.Total, v.CPU.Total, v.Memory.Total = float64(total.Pods), total.CPU, total.Memory
	v.NodePorts = Amount{float64(taken.NodePorts), float64(c.NodePorts)}
	v.Instances = Amount{float64(taken.Instances), float64(c.MaxInstances)}
	for n := range challenges {
		challenge := &challenges[n]
		if challenge.Shape == nil || challenge.Frozen {
			continue
		}
		if room, limited := plan.CalculateFreeCapacity(*challenge.Shape, own[challenge.ID()], v.Stock, taken); limited {
			v.Headroom = append(v.Headroom, Headroom{challenge.Namespace, challenge.Name, room})
		}
	}
	slices.SortStableFunc(v.Headroom, func(a, b Headroom) int {
		return cmp.Or(a.Most-b.Most, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Challenge, b.Challenge))
	})
	return v
}

// use returns the requests of the started instances, and their number by Challenge.
func use(rows []*Row, challenges []Challenge, home string) (taken plan.Use, own map[string]int) {
	shapes := map[string]*plan.Shape{}
	for n := range challenges {
		shapes[challenges[n].ID()] = challenges[n].Shape
	}
	own = map[string]int{}
	for _, r := range rows {
		if !r.UsesCapacity {
			continue
		}
		id := r.ChallengeID(home)
		own[id]++
		if shape := shapes[id]; shape != nil {
			taken.Add(*shape, 1)
		} else {
			taken.Instances++
		}
	}
	return taken, own
}
