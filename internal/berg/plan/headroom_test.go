package plan

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func amounts(cpu, memory, disk, pods string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourceEphemeralStorage: resource.MustParse(disk), corev1.ResourcePods: resource.MustParse(pods),
	}
}

func TestHeadroomForMoreInstances(t *testing.T) {
	const two = `containers: [{hostname: web, image: a}, {hostname: db, image: b, resourceRequests: {memory: 1Gi}, resourceLimits: {memory: 1Gi}}]`
	node := func(reserved corev1.ResourceList, pods int) Free {
		return NewFree(amounts("4", "8Gi", "10Gi", "110"), reserved, pods)
	}
	for name, tc := range map[string]struct {
		spec  string
		nodes []Free
		want  string
	}{
		"one node":              {oneWeb, []Free{node(nil, 0)}, "40 CPU"},
		"two nodes":             {oneWeb, []Free{node(nil, 0), node(nil, 0)}, "80 CPU"},
		"reserved":              {oneWeb, []Free{node(amounts("3.5", "1Gi", "1Gi", "0"), 5)}, "5 CPU"},
		"more than there is":    {oneWeb, []Free{node(amounts("5", "1Gi", "1Gi", "0"), 5)}, "0 CPU"},
		"pods":                  {oneWeb, []Free{node(nil, 107)}, "3 pods"},
		"memory":                {two, []Free{node(nil, 0)}, "7 memory"},
		"remainders are no sum": {two, []Free{node(amounts("0", "7400Mi", "0", "0"), 0), node(amounts("0", "7400Mi", "0", "0"), 0)}, "0 memory"},
		"disk":                  {oneWeb, []Free{node(amounts("0", "0", "9984Mi", "0"), 0)}, "4 disk"},
		"disk is not known":     {oneWeb, []Free{NewFree(amounts("1", "8Gi", "0", "110"), nil, 0)}, "10 CPU"},
		"no node":               {oneWeb, nil, "0 nodes"},
		"more than the limit":   {oneWeb, []Free{node(nil, 0), node(nil, 0), node(nil, 0)}, "100 "},
		"of most nodes":         {oneWeb, []Free{node(nil, 110), node(amounts("4", "0", "0", "0"), 0), node(amounts("4", "0", "0", "0"), 0)}, "0 CPU"},
	} {
		instances, by := Headroom(shape(t, tc.spec, settings), tc.nodes, 100)
		if got := fmt.Sprint(instances, " ", by); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
