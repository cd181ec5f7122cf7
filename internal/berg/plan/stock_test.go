package plan

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestRoomForMoreInstances(t *testing.T) {
	node := Node{CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi"), Pods: 30, Overhead: 10}
	wide := Node{CPU: resource.MustParse("4"), Memory: node.Memory, Pods: 30}
	two := []Node{node, node}
	sized := func(cpu, memory string) Shape {
		return shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: "`+cpu+`", memory: `+memory+`}, resourceLimits: {cpu: "`+cpu+`", memory: `+memory+`}}]`, settings)
	}
	web := shape(t, oneWeb, settings) // 100m, 128Mi, one pod
	pwn := shape(t, `containers: [{hostname: pwn, image: a, ports: [{port: 1, type: publicPort}]}]`, settings)
	pair := shape(t, `containers: [{hostname: a, image: a}, {hostname: b, image: a, resourceRequests: {cpu: "1500m"}, resourceLimits: {cpu: "1500m"}}]`, settings)
	limited := web
	limited.MaxInstances = 5
	taken := func(s Shape, n int) (u Use) {
		u.Add(s, n)
		return u
	}
	for name, c := range map[string]struct {
		shape Shape
		own   int
		has   Stock
		taken Use
		want  string
	}{
		"nothing is known":             {shape: web, want: "0 ()"},
		"CPU ends it":                  {shape: web, has: Stock{Nodes: []Node{node}}, taken: taken(sized("1050m", "1Mi"), 1), want: "9 (CPU)"},
		"memory ends it":               {shape: web, has: Stock{Nodes: []Node{node}}, taken: taken(sized("1m", "3788Mi"), 1), want: "2 (memory)"},
		"pods end it":                  {shape: web, has: Stock{Nodes: two}, taken: taken(sized("1m", "1Mi"), 37), want: "2 to 3 (pods)"},
		"more is taken than there":     {shape: web, has: Stock{Nodes: []Node{node}}, taken: taken(web, 70), want: "0 (pods)"},
		"node ports end it":            {shape: pwn, has: Stock{NodePorts: 10}, taken: taken(pwn, 8), want: "2 (node ports)"},
		"node ports concern it not":    {shape: web, has: Stock{NodePorts: 10}, taken: taken(pwn, 10), want: "0 ()"},
		"its own limit":                {shape: limited, own: 4, has: Stock{Nodes: []Node{node}}, want: "1 (spec.maxInstances)"},
		"the limit of all":             {shape: web, has: Stock{Instances: 3}, taken: taken(web, 1), want: "2 (CHALLENGE_MAX_INSTANCES)"},
		"no node is large enough":      {shape: sized("3", "1Gi"), has: Stock{Nodes: two}, want: "0 (the size of a node)"},
		"one of them is large enough":  {shape: sized("3", "1Gi"), has: Stock{Nodes: []Node{node, wide}}, want: "1 (the size of a node)"},
		"empty nodes":                  {shape: web, has: Stock{Nodes: two}, want: "39 to 40 (pods)"},
		"half of one, or of both":      {shape: sized("1200m", "1Gi"), has: Stock{Nodes: two}, taken: taken(web, 20), want: "0 to 1 (CPU)"},
		"its larger pod needs a node":  {shape: pair, has: Stock{Nodes: two}, want: "2 (CPU)"},
		"memory closes one, CPU other": {shape: sized("1", "3Gi"), has: Stock{Nodes: two}, taken: taken(sized("1500m", "2Gi"), 1), want: "1 to 2 (CPU)"},
	} {
		room, _ := CalculateFreeCapacity(c.shape, c.own, c.has, c.taken)
		if got := room.String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	var u Use
	u.Add(pwn, 3)
	if u.Instances != 3 || u.Pods != 3 || u.NodePorts != 3 || u.CPU < 0.29 || u.CPU > 0.31 {
		t.Errorf("%+v", u)
	}
}

// Pods are spread at random, the same each time, over nodes of random sizes. What fits then is never less than Least, nor more than Most.
func TestRoomHoldsHoweverPodsAreSpread(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	shapes := []Shape{
		shape(t, oneWeb, settings),
		shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: 700m}}, {hostname: b, image: a, resourceRequests: {memory: 1500Mi}, resourceLimits: {memory: 2Gi}}]`, settings),
		shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: "1", memory: 500Mi}}]`, settings),
		shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: 10m, memory: 3Gi}, resourceLimits: {memory: 3Gi}}]`, settings),
	}
	pick := func(sizes ...string) resource.Quantity { return resource.MustParse(sizes[random.IntN(len(sizes))]) }
	atLeastOne := 0
	for range 3000 {
		var has Stock
		var free []Free
		for range 1 + random.IntN(6) {
			n := Node{CPU: pick("1", "2", "4", "8"), Memory: pick("2Gi", "4Gi", "16Gi"), Disk: pick("1Gi", "100Gi"), Pods: 5 + random.IntN(40)}
			has.Nodes = append(has.Nodes, n)
			free = append(free, Free{nodeCapacity(n), n.Pods})
		}
		var taken Use
		for range random.IntN(40) {
			s := shapes[random.IntN(len(shapes))]
			after := slices.Clone(free)
			fits := true
			for _, p := range s.pods {
				fits = fits && place(after, p, random)
			}
			if fits {
				free = after
				taken.Add(s, 1)
			}
		}
		s := shapes[random.IntN(len(shapes))]
		room, _ := CalculateFreeCapacity(s, 0, has, taken)
		random.Shuffle(len(free), func(a, b int) { free[a], free[b] = free[b], free[a] })
		if n, _ := Headroom(s, free, 1000); n < room.Least || n > room.Most {
			t.Fatalf("%d fit, not %v: nodes %+v, taken %v, each %v", n, room, has.Nodes, slices.Collect(maps.Keys(taken.loads)), s.pods)
		}
		if room.Least > 0 {
			atLeastOne++
		}
	}
	if atLeastOne < 300 {
		t.Errorf("one instance was certain to fit %d times only", atLeastOne)
	}
}

// place puts a pod on one of the nodes that have room for it.
func place(nodes []Free, p load, random *rand.Rand) bool {
	for _, n := range random.Perm(len(nodes)) {
		if nodes[n].lacks(p) == "" {
			nodes[n].load = nodes[n].minus(p, 1)
			nodes[n].pods--
			return true
		}
	}
	return false
}
