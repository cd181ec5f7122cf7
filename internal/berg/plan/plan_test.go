package plan

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var settings = Settings{
	CPURequest: resource.MustParse("100m"), CPULimit: resource.MustParse("1"),
	MemoryRequest: resource.MustParse("128Mi"), MemoryLimit: resource.MustParse("512Mi"),
	DiskRequest: resource.MustParse("64Mi"), Policies: 1,
}

func shape(t *testing.T, text string, s Settings) Shape {
	t.Helper()
	c := &bergv1.Challenge{}
	if err := yaml.Unmarshal([]byte(text), &c.Spec); err != nil {
		t.Fatal(err)
	}
	c.Name = "some"
	out, err := NewShape(c, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const oneWeb = `containers: [{hostname: web, image: a, ports: [{name: web, port: 80, type: publicHttpRoute}]}]`

func TestShapeOfAnInstance(t *testing.T) {
	// docs/performance.md: 10 writes and two events.
	if got := shape(t, oneWeb, settings); got.Requests != 12 || got.Objects != 6 {
		t.Errorf("%d requests, %d objects", got.Requests, got.Objects)
	}
	if got := shape(t, `containers: [{hostname: bot, image: a}]`, settings); got.Services != 1 || got.Objects != 5 {
		t.Errorf("without ports: %d Services, %d objects", got.Services, got.Objects)
	}
	headless := settings
	headless.Headless, headless.PullSecret, headless.Policies = true, true, 2
	if got := shape(t, oneWeb, headless); got.Requests != 15 {
		t.Errorf("with headless Service, pull secret and two policies: %d requests", got.Requests)
	}
	everything := shape(t, `
containers:
- {hostname: web, image: a, ports: [{port: 80, type: publicHttpRoute}, {port: 81, type: publicTlsRoute}], dynamicFlag: {content: {path: /f}}}
- {hostname: pwn, image: a, ports: [{port: 1, type: publicPort}, {port: 1, protocol: udp, type: publicPort}, {port: 2, type: publicPort}], dynamicFlag: {executable: {path: /f}}}
- {hostname: db, image: a, ports: [{port: 3}]}
- {hostname: bot, image: a}
`, settings)
	// namespace, policy; four Deployments and budgets; web, pwn, pwn-node-port, db, bot; two routes; two files
	if everything.Objects != 2+8+5+2+2 || everything.NodePorts != 2 || everything.Routes != 2 || everything.Containers != 4 {
		t.Errorf("%+v", everything)
	}
}

func TestResourceRequestDefaults(t *testing.T) {
	for text, want := range map[string]string{
		`{hostname: a, image: a}`:                                                             "100m",
		`{hostname: a, image: a, resourceRequests: {cpu: "2"}}`:                               "2",
		`{hostname: a, image: a, resourceLimits: {cpu: 50m}}`:                                 "50m",
		`{hostname: a, image: a, resourceRequests: {cpu: "2"}, resourceLimits: {cpu: "0.5"}}`: "500m",
	} {
		want := resource.MustParse(want)
		if got := shape(t, "containers: ["+text+"]", settings); got.CPU.Cmp(want) != 0 {
			t.Errorf("%s: %s, want %s", text, got.CPU.String(), want.String())
		}
	}
	c := &bergv1.Challenge{}
	bad := bergv1.Amount("much")
	c.Spec.Containers = []bergv1.Container{{Hostname: "web", ResourceRequests: &bergv1.Resources{CPU: &bad}}}
	if _, err := NewShape(c, settings, 1); err == nil {
		t.Error("an invalid amount is accepted")
	}
}

var node = Node{CPU: resource.MustParse("16"), Memory: resource.MustParse("64Gi"), Pods: 110}

func of(t *testing.T, shapes []Shape, active int, n Node) Result {
	t.Helper()
	r, err := Calculate(shapes, Event{Players: 1 << 30, Active: active, Start: 5 * time.Minute, Lifetime: 2 * time.Hour, Duration: 10 * time.Hour}, n,
		Limits{NodePorts: 2768, EtcdMB: 2147, StartsPerSecond: 10})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Within 15 percent.
func TestPlanMatchesTheTableInCapacityMD(t *testing.T) {
	raw := shape(t, `containers: [{hostname: pwn, image: a, ports: [{port: 1, type: publicPort}]}]`, settings)
	for _, row := range []struct {
		instances, nodes, ports  int
		requests, etcd, operator float64
	}{
		{100, 1, 50, 4, 8, 140},
		{500, 5, 250, 20, 38, 140},
		{1000, 10, 500, 40, 75, 140},
		{3000, 28, 1500, 120, 225, 168},
		{10000, 91, 5000, 400, 750, 315},
	} {
		got := of(t, []Shape{shape(t, oneWeb, settings), raw}, row.instances, node)
		if got.Nodes != row.nodes || got.NodePorts != row.ports {
			t.Errorf("%d instances: %d nodes and %d node ports, want %d and %d", row.instances, got.Nodes, got.NodePorts, row.nodes, row.ports)
		}
		for what, pair := range map[string][2]float64{
			"requests": {got.RequestsPerSecond, row.requests}, "etcd": {got.EtcdMB, row.etcd}, "operator": {got.OperatorMiB, row.operator},
		} {
			if math.Abs(pair[0]/pair[1]-1) > 0.15 {
				t.Errorf("%d instances, %s: %.1f, docs/capacity.md has %.1f", row.instances, what, pair[0], pair[1])
			}
		}
	}
}

func TestNodePacking(t *testing.T) {
	large := shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: "9"}, resourceLimits: {cpu: "9"}}]`, settings)
	// Nine CPUs of sixteen: one for each node, however much is left.
	if got := of(t, []Shape{large}, 10, node); got.Nodes != 10 {
		t.Errorf("%d nodes for 10 pods of 9 of 16 CPUs", got.Nodes)
	}
	small := shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: "1"}}]`, settings)
	small.Weight = 7
	if got := of(t, []Shape{large, small}, 80, node); got.Nodes != 10 {
		t.Errorf("%d nodes, although ten large pods leave room for seventy small ones", got.Nodes)
	}
	huge := shape(t, `containers: [{hostname: a, image: a, resourceRequests: {cpu: "17"}, resourceLimits: {cpu: "17"}}]`, settings)
	got := of(t, []Shape{huge}, 1, node)
	if !strings.HasSuffix(got.Impossible, "Challenge some") || got.Fits() || got.Nodes != 0 || got.Cost != 0 {
		t.Errorf("17 CPUs on a node of 16: %+v", got)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"impossible":"a container requests`) || strings.Contains(string(text), `"nodes":`) || strings.Contains(string(text), `"cost":`) {
		t.Errorf("%v, %s", err, text)
	}
	crowded := node
	crowded.Overhead = 10
	if got := of(t, []Shape{shape(t, oneWeb, settings)}, 101, crowded); got.Nodes != 2 {
		t.Errorf("101 pods on nodes with room for 100: %d", got.Nodes)
	}
}

func TestFirstLimitOfAPlan(t *testing.T) {
	raw := shape(t, `containers: [{hostname: pwn, image: a, ports: [{port: 1, type: publicPort}]}]`, settings)
	got := of(t, []Shape{raw}, 2769, node)
	if got.Breaks[0].What != "node ports" || got.Breaks[0].At != 2768 || got.Fits() {
		t.Errorf("first %+v, fits: %t", got.Breaks[0], got.Fits())
	}
	if got := of(t, []Shape{raw}, 2768, node); !got.Fits() {
		t.Errorf("2768 node ports are enough: %+v", got.Breaks[0])
	}
}

func TestInstanceLimitsOfAPlan(t *testing.T) {
	first := func(shapes []Shape, l Limits) Break {
		r, err := Calculate(shapes, Event{Players: 100, Active: 100, Start: time.Hour}, node, l)
		if err != nil {
			t.Fatal(err)
		}
		return r.Breaks[0]
	}
	few, many := shape(t, oneWeb, settings), shape(t, oneWeb, settings)
	few.Challenge, few.MaxInstances = "few", 10
	for what, pair := range map[string][2]Break{
		"of all": {first([]Shape{many}, Limits{Instances: 50}), {What: "CHALLENGE_MAX_INSTANCES", At: 50, Share: 2}},
		"of one": {first([]Shape{few, many}, Limits{Instances: 50}), {What: "maxInstances of Challenge few", At: 20, Share: 5}},
	} {
		if got, want := pair[0], pair[1]; got.What != want.What || got.At != want.At || got.Share != want.Share || got.Do == "" {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	c := &bergv1.Challenge{}
	c.Spec.MaxInstances = 7
	if got, err := NewShape(c, settings, 1); err != nil || got.MaxInstances != 7 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestPlanWithoutInstances(t *testing.T) {
	if got := of(t, []Shape{shape(t, oneWeb, settings)}, 0, node); got.Nodes != 0 || got.Pods != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := Calculate(nil, Event{}, node, Limits{}); err == nil {
		t.Error("no error without Challenges")
	}
}

func TestPreparedInstancesAreCounted(t *testing.T) {
	players := Event{Players: 10, Active: 10, Start: 10 * time.Second, Lifetime: time.Hour}
	node := Node{CPU: resource.MustParse("1"), Memory: resource.MustParse("64Gi"), Pods: 110}
	cold, warm := shape(t, oneWeb, settings), shape(t, oneWeb, settings)
	warm.Prepared, warm.MaxInstances = 6, 10
	before, err := Calculate([]Shape{cold, cold}, players, node, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := Calculate([]Shape{cold, warm}, players, node, Limits{Instances: 15})
	if err != nil {
		t.Fatal(err)
	}
	if after.Instances != 16 || after.Pods != before.Pods+6 || after.Routes != before.Routes+6 || after.Nodes != 2 || before.Nodes != 1 {
		t.Errorf("%+v, before %+v", after, before)
	}
	if after.StartsPerSecond != before.StartsPerSecond || after.SteadyPerSecond != before.SteadyPerSecond {
		t.Errorf("starts of players: %+v, before %+v", after, before)
	}
	if after.Shapes[1].Weight != 1 {
		t.Errorf("the weight of a Challenge is %v", after.Shapes[1].Weight)
	}
	shares := map[string]float64{}
	for _, b := range after.Breaks {
		shares[b.What] = b.Share
	}
	if shares["CHALLENGE_MAX_INSTANCES"] != 16.0/15 || shares["maxInstances of Challenge some"] != 1.1 {
		t.Errorf("%v", shares)
	}
}
