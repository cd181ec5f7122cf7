package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Settings are the settings of the operator that affect a plan.
type Settings struct {
	CPURequest, CPULimit       resource.Quantity
	MemoryRequest, MemoryLimit resource.Quantity
	DiskRequest                resource.Quantity
	// Policies is the number of network policies of an instance: one, or two with
	// NETWORK_POLICY=both.
	Policies int
	// Headless is CHALLENGE_ADDITIONAL_HEADLESS_SERVICE, PullSecret that PULL_SECRET_NAME is set.
	Headless, PullSecret bool
	// MaxInstances is CHALLENGE_MAX_INSTANCES, 0 for no limit.
	MaxInstances int
}

// Event describes an event.
type Event struct {
	// Players is the number of owners, Active how many of them have an instance at peak. An owner has
	// one instance.
	Players, Active int
	// Start is the period in which the instances of the peak start.
	Start time.Duration
	// Lifetime is the lifetime of an instance, Duration the duration of the event.
	Lifetime, Duration time.Duration
}

// Node is the size of a node.
type Node struct {
	CPU, Memory, Disk resource.Quantity
	Pods              int
	// Overhead is the number of other pods on every node.
	Overhead int
	// Price is the price of a node per hour, 0 if unknown.
	Price float64
}

// Limits are the limits of the cluster.
type Limits struct {
	// NodePorts is the size of --service-node-port-range.
	NodePorts int
	// EtcdMB is --quota-backend-bytes.
	EtcdMB float64
	// StartsPerSecond is the rate at which the API server can start instances with one container.
	StartsPerSecond float64
	// Nodes is the number of nodes, 0 if they were not read.
	Nodes int
	// Instances is CHALLENGE_MAX_INSTANCES, 0 for no limit.
	Instances int
}

// The cost of an instance, as measured in docs/capacity.md. The cost per object scales with the
// Challenge. One container with one route has six objects.
const (
	// writesOfInstance are the writes of the resource itself: one of its finalizer, three of its status.
	writesOfInstance = 4
	eventsOfInstance = 2
	// etcdBase, etcdPerContainer and etcdPerObject are kB, together 75 kB for six objects. Pods, and the
	// objects that Kubernetes adds to them, are per container.
	etcdBase         = 33.0
	etcdPerContainer = 30.0
	etcdPerObject    = 3.0
	// operatorBase and operatorPerInstance are MiB of memory; startMemory is the minimum.
	operatorBase        = 105.0
	operatorPerInstance = 22.0 / 1024
	operatorPerObject   = operatorPerInstance / 6
	startMemory         = 140.0
	operatorLimit       = 1024.0
	// apiServerBase and apiServerPerInstance are MiB.
	apiServerBase        = 920.0
	apiServerPerInstance = 0.42
)

// Shape holds the resources of one instance of a Challenge.
type Shape struct {
	Challenge  string            `json:"challenge"`
	Containers int               `json:"containers"`
	CPU        resource.Quantity `json:"cpu"`
	Memory     resource.Quantity `json:"memory"`
	Disk       resource.Quantity `json:"disk"`
	NodePorts  int               `json:"nodePorts"`
	Routes     int               `json:"routes"`
	Services   int               `json:"services"`
	// Objects is the number of objects that the operator creates.
	Objects int `json:"objects"`
	// Requests is the number of requests of the operator until the instance runs.
	Requests int     `json:"requests"`
	Weight   float64 `json:"weight"`
	// MaxInstances is spec.maxInstances, 0 for no limit.
	MaxInstances int `json:"maxInstances,omitempty"`
	// Prepared is spec.warm.min, within the limit of the operator.
	Prepared int `json:"prepared,omitempty"`
	// pods are the requests of each container.
	pods []load
}

type load struct{ cpu, memory, disk float64 }

// NewShape returns the shape of a Challenge.
func NewShape(c *bergv1.Challenge, s Settings, weight float64) (Shape, error) {
	out := Shape{Challenge: c.Name, Containers: len(c.Spec.Containers), Weight: weight, MaxInstances: int(c.Spec.MaxInstances)}
	objects := 1 + max(1, s.Policies) // the namespace
	var content, executable bool
	for _, container := range c.Spec.Containers {
		cpu, err := request(container, s.CPURequest, s.CPULimit, func(r bergv1.Resources) *bergv1.Amount { return r.CPU })
		if err != nil {
			return out, fmt.Errorf("cpu of Challenge %s, container %s: %w", c.Name, container.Hostname, err)
		}
		memory, err := request(container, s.MemoryRequest, s.MemoryLimit, func(r bergv1.Resources) *bergv1.Amount { return r.Memory })
		if err != nil {
			return out, fmt.Errorf("memory of Challenge %s, container %s: %w", c.Name, container.Hostname, err)
		}
		out.CPU.Add(cpu)
		out.Memory.Add(memory)
		out.Disk.Add(s.DiskRequest)
		out.pods = append(out.pods, load{cpu.AsApproximateFloat64(), memory.AsApproximateFloat64(), s.DiskRequest.AsApproximateFloat64()})
		public := nodePorts(container)
		out.NodePorts += public
		out.Services++ // also without ports: for the hostname
		if public > 0 {
			out.Services++
		}
		if s.Headless {
			out.Services++
		}
		for _, p := range container.Ports {
			if p.Routed() {
				out.Routes++
			}
		}
		objects += 2 // a Deployment and a disruption budget
		if f := container.DynamicFlag; f != nil {
			content, executable = content || f.Content != nil, executable || f.Executable != nil
		}
	}
	for _, present := range []bool{content, executable, s.PullSecret} {
		if present {
			objects++
		}
	}
	out.Objects = objects + out.Services + out.Routes
	out.Requests = out.Objects + writesOfInstance + eventsOfInstance
	return out, nil
}

// nodePorts counts the node ports of a container. TCP and UDP with one number share one.
func nodePorts(c bergv1.Container) int {
	numbers := map[int32]bool{}
	for _, p := range c.Ports {
		if p.OnNodePort() {
			numbers[p.Port] = true
		}
	}
	return len(numbers)
}

// request returns the resource request of a container, with the defaults of the operator.
func request(c bergv1.Container, defaultRequest, defaultLimit resource.Quantity, field func(bergv1.Resources) *bergv1.Amount) (resource.Quantity, error) {
	requested, limit := defaultRequest, defaultLimit
	var err error
	own, limited := false, false
	if c.ResourceRequests != nil && field(*c.ResourceRequests) != nil {
		own = true
		if requested, err = field(*c.ResourceRequests).Quantity(); err != nil {
			return requested, err
		}
	}
	if c.ResourceLimits != nil && field(*c.ResourceLimits) != nil {
		limited = true
		if limit, err = field(*c.ResourceLimits).Quantity(); err != nil {
			return requested, err
		}
	}
	if requested.Cmp(limit) > 0 && (limited || !own) {
		return limit, nil
	}
	return requested, nil
}

// Break is a limit that an event can reach.
type Break struct {
	What string `json:"what"`
	// At is the number of instances that reach the limit, Share the part of the limit that the event uses.
	At    int     `json:"atInstances"`
	Share float64 `json:"share"`
	Do    string  `json:"do"`
}

// Result holds the needs of an event.
type Result struct {
	Instances int `json:"instances"`
	Pods      int `json:"pods"`
	// Impossible names the part that cannot run on such nodes at all, "" if everything can. It
	// excludes Nodes and Cost.
	Impossible string  `json:"impossible,omitempty"`
	Nodes      int     `json:"nodes,omitempty"`
	NodesBy    string  `json:"nodesBy,omitempty"`
	CPU        float64 `json:"cpu"`
	MemoryGiB  float64 `json:"memoryGiB"`
	DiskGiB    float64 `json:"diskGiB"`
	NodePorts  int     `json:"nodePorts"`
	Routes     int     `json:"routes"`
	// The requests of the operator: per start, per second while all instances start, and per second
	// later, while instances end and start again.
	RequestsPerInstance float64 `json:"requestsPerInstance"`
	RequestsPerSecond   float64 `json:"requestsPerSecond"`
	SteadyPerSecond     float64 `json:"steadyRequestsPerSecond"`
	StartsPerSecond     float64 `json:"startsPerSecond"`
	EtcdMB              float64 `json:"etcdMB"`
	OperatorMiB         float64 `json:"operatorMiB"`
	APIServerMiB        float64 `json:"apiServerMiB"`
	Cost                float64 `json:"cost,omitempty"`
	Breaks              []Break `json:"breaks"`
	Shapes              []Shape `json:"challenges"`
}

// deletionRequests are the requests of the operator to delete an instance: four writes and one read.
const deletionRequests = 5

// Calculate computes the needs of an event. A limit or a size that is 0 is not known, and limits nothing.
func Calculate(shapes []Shape, e Event, n Node, l Limits) (Result, error) {
	if len(shapes) == 0 {
		return Result{}, errors.New("there are no Challenges")
	}
	var weights float64
	for _, s := range shapes {
		weights += s.Weight
	}
	if weights <= 0 {
		return Result{}, errors.New("no Challenge has a positive weight")
	}
	players := min(e.Active, e.Players)
	r := Result{Instances: players, Shapes: shapes}
	// From here on the weight of a Challenge is its number of instances, of players and prepared ones.
	shapes, weights = countInstances(shapes, float64(players)/weights)
	r.Instances += sumPrepared(shapes)
	total := float64(r.Instances)
	var pods, cpu, memory, disk, ports, routes, requests, objects, containers float64
	for _, s := range shapes {
		share := s.Weight
		pods += share * float64(s.Containers)
		cpu += share * s.CPU.AsApproximateFloat64()
		memory += share * s.Memory.AsApproximateFloat64()
		disk += share * s.Disk.AsApproximateFloat64()
		ports += share * float64(s.NodePorts)
		routes += share * float64(s.Routes)
		requests += share * float64(s.Requests)
		objects += share * float64(s.Objects)
		containers += share * float64(s.Containers)
	}
	const gib = 1 << 30
	r.Pods, r.NodePorts, r.Routes = ceil(pods), ceil(ports), ceil(routes)
	r.CPU, r.MemoryGiB, r.DiskGiB = cpu, memory/gib, disk/gib
	if total > 0 {
		r.RequestsPerInstance = requests / total
	}
	r.StartsPerSecond = float64(players) / max(1, e.Start.Seconds())
	r.RequestsPerSecond = r.StartsPerSecond * r.RequestsPerInstance
	if e.Lifetime > 0 {
		r.SteadyPerSecond = float64(players) / e.Lifetime.Seconds() * (r.RequestsPerInstance + deletionRequests)
	}
	r.EtcdMB = (total*etcdBase + containers*etcdPerContainer + max(0, objects-2*total)*etcdPerObject) / 1000
	r.OperatorMiB = max(startMemory, operatorBase+objects*operatorPerObject)
	r.APIServerMiB = apiServerBase + total*apiServerPerInstance

	needs := []struct {
		resource string
		need     float64
	}{
		{"pods", pods / max(1, float64(n.Pods-n.Overhead))},
		{"CPU", divide(cpu, n.CPU)},
		{"memory", divide(memory, n.Memory)},
		{"disk", divide(disk, n.Disk)},
	}
	largest := slices.MaxFunc(needs, func(a, b struct {
		resource string
		need     float64
	},
	) int {
		return cmp.Compare(a.need, b.need)
	})
	if r.Impossible = impossible(shapes, n); r.Impossible == "" && r.Instances > 0 {
		r.NodesBy = largest.resource
		r.Nodes = pack(shapes, weights, r.Instances, n)
		if r.Nodes > ceil(largest.need) {
			r.NodesBy = largest.resource + ", and unused remainders of nodes"
		}
	}
	r.Cost = n.Price * float64(r.Nodes) * e.Duration.Hours()
	r.Breaks = breaks(r, shapes, l, largest.need, objects)
	return r, nil
}

// countInstances returns the shapes with their numbers of instances as weights, and the sum.
func countInstances(shapes []Shape, perWeight float64) (counted []Shape, total float64) {
	counted = slices.Clone(shapes)
	for n := range counted {
		counted[n].Weight = counted[n].Weight*perWeight + float64(counted[n].Prepared)
		total += counted[n].Weight
	}
	return counted, total
}

func sumPrepared(shapes []Shape) (sum int) {
	for _, s := range shapes {
		sum += s.Prepared
	}
	return sum
}

func ceil(f float64) int { return int(math.Ceil(f - 1e-9)) }

func divide(need float64, available resource.Quantity) float64 {
	if available.IsZero() {
		return 0
	}
	return need / available.AsApproximateFloat64()
}

// nodeCapacity returns the capacity of a node.
func nodeCapacity(n Node) load {
	return load{n.CPU.AsApproximateFloat64(), n.Memory.AsApproximateFloat64(), n.Disk.AsApproximateFloat64()}
}

// nodeShare returns the share of a node that a pod uses.
func nodeShare(pod, capacity load) float64 {
	return max(part(pod.cpu, capacity.cpu), part(pod.memory, capacity.memory), part(pod.disk, capacity.disk))
}

// impossible names the Challenges with a container that requests more than a node has, "" if there are
// none.
func impossible(shapes []Shape, n Node) string {
	var names []string
	for _, s := range shapes {
		if s.Weight > 0 && slices.ContainsFunc(s.pods, func(p load) bool { return nodeShare(p, nodeCapacity(n)) > 1 }) {
			names = append(names, s.Challenge)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "a container requests more than a node has: Challenge " + strings.Join(names, ", ")
}

// pack returns how many nodes the pods of all instances need, with the largest pods first. The scheduler
// needs a few more at most.
func pack(shapes []Shape, weights float64, instances int, n Node) int {
	type kind struct {
		load
		count int
	}
	var kinds []kind
	for _, s := range shapes {
		count := ceil(float64(instances) * s.Weight / weights)
		for _, p := range s.pods {
			kinds = append(kinds, kind{p, count})
		}
	}
	whole := nodeCapacity(n)
	slices.SortStableFunc(kinds, func(a, b kind) int { return cmp.Compare(nodeShare(b.load, whole), nodeShare(a.load, whole)) })
	type free struct {
		load
		pods, same int
	}
	// Equal nodes are counted together: thousands of nodes are of a few kinds.
	var nodes []free
	slots := max(1, n.Pods-n.Overhead)
	for _, k := range kinds {
		if k.count == 0 {
			continue
		}
		left := k.count
		for i := 0; i < len(nodes) && left > 0; i++ {
			fits := min(fitting(nodes[i].load, k.load, whole), nodes[i].pods)
			if fits == 0 {
				continue
			}
			full := min(nodes[i].same, left/fits)
			if full == 0 { // the last node takes the rest
				rest := nodes[i]
				rest.same = nodes[i].same - 1
				nodes[i] = free{nodes[i].minus(k.load, left), nodes[i].pods - left, 1}
				left = 0
				if rest.same > 0 {
					nodes = append(nodes, rest)
				}
				continue
			}
			if rest := nodes[i].same - full; rest > 0 {
				other := nodes[i]
				other.same = rest
				nodes = append(nodes, other)
			}
			nodes[i] = free{nodes[i].minus(k.load, fits), nodes[i].pods - fits, full}
			left -= full * fits
		}
		if left <= 0 {
			continue
		}
		each := min(fitting(whole, k.load, whole), slots)
		if full := left / each; full > 0 {
			nodes = append(nodes, free{whole.minus(k.load, each), slots - each, full})
			left -= full * each
		}
		if left > 0 {
			nodes = append(nodes, free{whole.minus(k.load, left), slots - left, 1})
		}
	}
	count := 0
	for _, node := range nodes {
		count += node.same
	}
	return count
}

func part(need, capacity float64) float64 {
	if capacity == 0 {
		return 0 // unknown
	}
	return need / capacity
}

func (l load) minus(o load, times int) load {
	f := float64(times)
	return load{l.cpu - o.cpu*f, l.memory - o.memory*f, l.disk - o.disk*f}
}

// fitting returns how many pods fit, as far as the size of the node is known.
func fitting(available, each, capacity load) int {
	n := math.Inf(1)
	for _, d := range []struct{ available, each, capacity float64 }{
		{available.cpu, each.cpu, capacity.cpu}, {available.memory, each.memory, capacity.memory}, {available.disk, each.disk, capacity.disk},
	} {
		if d.capacity > 0 && d.each > 0 {
			n = min(n, math.Floor(d.available/d.each+1e-9))
		}
	}
	if math.IsInf(n, 1) {
		return math.MaxInt32
	}
	return max(0, int(n))
}

// breaks returns the limits, the first one that is reached first. nodes is the number of full nodes that
// are needed, objects the number of objects of all instances.
func breaks(r Result, counted []Shape, l Limits, nodes, objects float64) []Break {
	n := max(1, float64(r.Instances))
	var out []Break
	add := func(label string, limit, taken float64, do string) {
		if limit <= 0 || taken <= 0 {
			return
		}
		out = append(out, Break{What: label, At: int(math.Min(n*limit/taken, math.MaxInt32)), Share: taken / limit, Do: do})
	}
	add("CHALLENGE_MAX_INSTANCES", float64(l.Instances), float64(r.Instances), "raise it: further instances are queued")
	for _, s := range counted {
		add("maxInstances of Challenge "+s.Challenge, float64(s.MaxInstances), s.Weight, "raise it: further instances are queued")
	}
	if r.Impossible == "" {
		add("nodes ("+r.NodesBy+")", float64(l.Nodes), nodes, fmt.Sprintf("provide %d nodes", r.Nodes))
	}
	add("node ports", float64(l.NodePorts), float64(r.NodePorts), "use routes, or extend --service-node-port-range of the API server")
	add("starts per second", l.StartsPerSecond, r.StartsPerSecond,
		"open the challenges one after the other, spread the starts, or give the API server and etcd more CPUs")
	add("etcd's database", l.EtcdMB, r.EtcdMB, "raise --quota-backend-bytes, up to 8 GiB")
	add("the operator's memory limit of 1 GiB", operatorLimit-operatorBase, objects*operatorPerObject, "raise the memory limit of the operator's pod")
	add("namespaces with which Kubernetes is tested", 10000, float64(r.Instances), "use several clusters")
	add("pods with which Kubernetes is tested", 150000, float64(r.Pods), "use several clusters")
	slices.SortStableFunc(out, func(a, b Break) int { return cmp.Compare(a.At, b.At) })
	return out
}

// Fits reports whether the event reaches no limit.
func (r Result) Fits() bool {
	return r.Impossible == "" && !slices.ContainsFunc(r.Breaks, func(b Break) bool { return b.Share > 1 })
}
