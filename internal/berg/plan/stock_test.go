package plan

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestRoomForMoreInstances(t *testing.T) {
	node := Node{CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi"), Pods: 30, Overhead: 10}
	web := shape(t, oneWeb, settings) // 100m, 128Mi, one pod
	pwn := shape(t, `containers: [{hostname: pwn, image: a, ports: [{port: 1, type: publicPort}]}]`, settings)
	limited := web
	limited.MaxInstances = 5
	large := shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: "3"}, resourceLimits: {cpu: "3"}}]`, settings)
	for name, c := range map[string]struct {
		shape Shape
		own   int
		has   Stock
		taken Use
		room  int
		by    string
		none  bool
	}{
		"nothing is known":          {shape: web, none: true},
		"CPU ends it":               {shape: web, has: Stock{Nodes: []Node{node}}, taken: Use{CPU: 1.05}, room: 9, by: "CPU"},
		"memory ends it":            {shape: web, has: Stock{Nodes: []Node{node}}, taken: Use{Memory: 3.7 * (1 << 30)}, room: 2, by: "memory"},
		"pods end it":               {shape: web, has: Stock{Nodes: []Node{node, node}}, taken: Use{Pods: 37}, room: 3, by: "pods"},
		"more is taken than there":  {shape: web, has: Stock{Nodes: []Node{node}}, taken: Use{CPU: 7}, room: 0, by: "CPU"},
		"node ports end it":         {shape: pwn, has: Stock{NodePorts: 10}, taken: Use{NodePorts: 8}, room: 2, by: "node ports"},
		"node ports concern it not": {shape: web, has: Stock{NodePorts: 10}, taken: Use{NodePorts: 10}, none: true},
		"its own limit":             {shape: limited, own: 4, has: Stock{Nodes: []Node{node}}, room: 1, by: "maxInstances"},
		"the limit of all":          {shape: web, has: Stock{Instances: 3}, taken: Use{Instances: 1}, room: 2, by: "CHALLENGE_MAX_INSTANCES"},
		"no node is large enough":   {shape: large, has: Stock{Nodes: []Node{node, node}}, room: 0, by: "the size of a node"},
		"one of them is large enough": {
			shape: large, has: Stock{Nodes: []Node{node, {CPU: resource.MustParse("4"), Memory: node.Memory, Pods: 30}}}, room: 2, by: "CPU",
		},
	} {
		room, by, isLimited := Room(c.shape, c.own, c.has, c.taken)
		if room != c.room || by != c.by || isLimited == c.none {
			t.Errorf("%s: %d by %q, limited: %t", name, room, by, isLimited)
		}
	}
	var u Use
	u.Add(pwn, 3)
	if u.Instances != 3 || u.Pods != 3 || u.NodePorts != 3 || u.CPU < 0.29 || u.CPU > 0.31 {
		t.Errorf("%+v", u)
	}
}
