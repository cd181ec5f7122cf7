package plan

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Free is the unused capacity of a node.
type Free struct {
	load
	pods int
}

// NewFree returns the unused capacity of a node when a number of pods has reserved a part.
func NewFree(allocatable, reserved corev1.ResourceList, pods int) Free {
	left := func(name corev1.ResourceName) float64 {
		allocatable, taken := allocatable[name], reserved[name]
		return max(0, allocatable.AsApproximateFloat64()-taken.AsApproximateFloat64())
	}
	free := Free{load{left(corev1.ResourceCPU), left(corev1.ResourceMemory), left(corev1.ResourceEphemeralStorage)}, max(0, int(allocatable.Pods().Value())-pods)}
	if allocatable.StorageEphemeral().IsZero() {
		free.disk = -1 // unknown
	}
	return free
}

// Headroom returns how many more instances of a shape fit on nodes, limit at most, and the resource that is used up then:
// CPU, memory, disk or pods. It is "" if more than limit fit. It puts each pod on the first node that takes it. The scheduler may
// place pods otherwise.
func Headroom(s Shape, nodes []Free, limit int) (instances int, constraint string) {
	left := slices.Clone(nodes)
	// The free capacity only shrinks: a node on which a pod does not fit stays so.
	from := make([]int, len(s.pods))
	for ; instances < limit; instances++ {
		for n, p := range s.pods {
			for from[n] < len(left) && left[from[n]].lacks(p) != "" {
				from[n]++
			}
			if from[n] == len(left) {
				return instances, scarcest(left, p)
			}
			node := &left[from[n]]
			unknown := node.disk < 0
			node.load = node.minus(p, 1)
			if unknown {
				node.disk = -1
			}
			node.pods--
		}
	}
	return instances, ""
}

// lacks returns the resource of which a node has too little for a pod, "" if the pod fits.
func (f Free) lacks(p load) string {
	switch {
	case f.pods < 1:
		return "pods"
	case p.cpu > f.cpu+margin:
		return "CPU"
	case p.memory > f.memory+margin:
		return "memory"
	case f.disk >= 0 && p.disk > f.disk+margin:
		return "disk"
	default:
		return ""
	}
}

// scarcest returns the resource of which most nodes have too little for a pod.
func scarcest(nodes []Free, p load) string {
	count := map[string]int{}
	for _, node := range nodes {
		count[node.lacks(p)]++
	}
	names := slices.Sorted(maps.Keys(count))
	if len(names) == 0 {
		return "nodes"
	}
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
}
