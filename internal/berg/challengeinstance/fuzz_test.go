package challengeinstance

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/config"
	kit "github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/test/lib/authors"
)

// FuzzFromJSON is about any JSON that an API server under any schema may hold.
func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"containers":[{"hostname":"a","image":"i","ports":[{"port":1,"type":"publicPort"}]}]}`), []byte(`{"ownerId":"a1b2c3d4-e5f6-7890-abcd-ef1234567890","flag":"flag{x}"}`))
	f.Add(authors.New(1, 0).Spec(), []byte(`{"timeout":"1h","terminationReason":"Timeout"}`))
	cfg := testConfig(f, nil)
	f.Fuzz(func(t *testing.T, challenge, instance []byte) {
		var spec bergv1.ChallengeSpec
		var of bergv1.ChallengeInstanceSpec
		if json.Unmarshal(challenge, &spec) != nil || json.Unmarshal(instance, &of) != nil {
			return
		}
		planFuzzed(t, cfg, spec, of)
	})
}

// FuzzAuthors is about Challenges that are nearly right.
func FuzzAuthors(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, byte(seed*6), "flag{fuzz}", seed%2 == 0)
	}
	configs := []config.Berg{
		testConfig(f, nil),
		testConfig(f, map[string]string{
			"NETWORK_POLICY": "both", "CHALLENGE_ADDITIONAL_HEADLESS_SERVICE": "true", "PULL_SECRET_NAME": "registry",
			"CHALLENGE_ALLOWED_CAPABILITIES": "ALL", "CHALLENGE_RUNTIME_CLASS_NAME": "gvisor",
		}),
	}
	f.Fuzz(func(t *testing.T, seed uint64, oddity byte, flag string, other bool) {
		var spec bergv1.ChallengeSpec
		if err := json.Unmarshal(authors.New(seed, float64(oddity)/1024).Spec(), &spec); err != nil {
			t.Fatalf("a Challenge of the right outline cannot be decoded, which would stop all of the cluster: %v", err)
		}
		cfg := configs[0]
		if other {
			cfg = configs[1]
		}
		planFuzzed(t, cfg, spec, bergv1.ChallengeInstanceSpec{OwnerID: "a1b2c3d4-e5f6-7890-abcd-ef1234567890", Flag: flag})
	})
}

// Thousands of authors, the same at every run; AUTHORS sets how many.
func TestAuthors(t *testing.T) {
	n := uint64(1000)
	if text := os.Getenv("AUTHORS"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("AUTHORS: %v", err)
		}
	}
	cfg := testConfig(t, nil)
	var planned uint64
	for seed := range n {
		var spec bergv1.ChallengeSpec
		if err := json.Unmarshal(authors.New(seed, float64(seed%32)/512).Spec(), &spec); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if planFuzzed(t, cfg, spec, bergv1.ChallengeInstanceSpec{Flag: "flag{authors}"}) {
			planned++
		}
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, written(spec))
		}
	}
	t.Logf("%d of %d planned, the others refused", planned, n)
	if planned < n/10 || planned > n-n/10 {
		t.Errorf("%d of %d planned: the authors are too careless, or not enough", planned, n)
	}
}

// planFuzzed takes an instance from its Challenge to its plan. It is refused for a
// reason that names the field, or all that is planned is within bounds. It reports
// whether a plan was made.
func planFuzzed(t *testing.T, cfg config.Berg, challenge bergv1.ChallengeSpec, spec bergv1.ChallengeInstanceSpec) bool {
	t.Helper()
	instance := testInstance(func(i *bergv1.ChallengeInstance) {
		owner := i.Spec.OwnerID
		i.Spec = spec
		i.Spec.OwnerID = owner // its pattern is the schema's
	})
	o := status.Observed{Candidate: status.Candidate{Instance: instance, Challenge: &bergv1.Challenge{Spec: challenge}}}
	began := time.Now()
	problem := status.Check(o, cfg.Challenge)
	if problem == nil {
		before := instance.DeepCopy()
		adopted := &status.Adoption{Snapshot: reread(t, manifests.NewSnapshot(o.Challenge, cfg.Challenge)), Revision: "challenge-revision-one"}
		status.Compute(status.Outcome{Observed: o, Adopted: adopted}, cfg.Challenge, noon)
		store(t, before, instance)
		o.Pinned = &adopted.Snapshot
		instance.Status.InstanceID = "01920000-0000-7000-8000-000000000001"
		o.Policies = cfg.Challenge.NetworkPolicy.On(true, true)
		problem = checkPlan(t, (&Reconciler{Config: cfg}).inputs(o))
	}
	if problem != nil {
		checkRefusal(t, problem)
	}
	status.Compute(status.Outcome{Observed: o, Problem: problem}, cfg.Challenge, noon)
	if o.Pinned != nil && !meta.IsStatusConditionTrue(instance.Status.Conditions, bergv1.ConditionUpToDate) {
		t.Fatalf("the snapshot differs from the Challenge: it could never be UpToDate\n%+v", o.Pinned)
	}
	if err := kit.Violations(nil, instance.Status.Conditions, instance.Generation); err != nil {
		t.Error(err)
	}
	for _, c := range instance.Status.Conditions {
		rest := strings.ReplaceAll(c.Message, "<flag>", "") // which may be what the flag says, too
		if len(spec.Flag) > 3 && strings.Contains(rest, spec.Flag) && !strings.Contains(written(challenge), spec.Flag) {
			t.Errorf("the condition %s repeats the flag: %s", c.Type, c.Message)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	return problem == nil
}

// store does with a status what the API server does with a merge patch of it: it takes
// every null for a deletion, and decodes and encodes the rest as it likes.
func store(t *testing.T, before, after *bergv1.ChallengeInstance) {
	t.Helper()
	patch, err := client.MergeFrom(before).Data(after)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := jsonpatch.MergePatch([]byte(asJSON(t, before)), patch)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(merged, &object); err != nil {
		t.Fatal(err)
	}
	stored := &bergv1.ChallengeInstance{}
	if err := json.Unmarshal([]byte(asJSON(t, object)), stored); err != nil {
		t.Fatal(err)
	}
	*after = *stored
}

// written is a Challenge as text, to find in it what an author wrote and a message repeats.
func written(c bergv1.ChallengeSpec) string {
	data, _ := json.Marshal(c)
	return string(data)
}

// checkRefusal: a person must be able to tell what to fix.
func checkRefusal(t *testing.T, p *outcome.Problem) {
	t.Helper()
	names := map[string]string{
		bergv1.ReasonInvalidChallenge: "spec.", bergv1.ReasonInvalidFlag: "spec.flag", bergv1.ReasonFlagMissing: "spec.flag", bergv1.ReasonNothingToRun: "no containers",
	}
	want, known := names[p.Reason]
	if !known || !strings.Contains(p.Message, want) {
		t.Errorf("%s does not name the field: %s", p.Reason, p.Message)
	}
	if len(p.Message) > 4<<10 {
		t.Errorf("a message of %d bytes", len(p.Message))
	}
}

// checkPlan plans everything and looks at each object as an API server does, and
// as one who fears the author.
func checkPlan(t *testing.T, in manifests.Inputs) *outcome.Problem {
	t.Helper()
	f, err := manifests.PlanFoundation(in)
	if err != nil {
		return &outcome.Problem{Condition: bergv1.ConditionFlagValidation, Reason: bergv1.ReasonInvalidFlag, Class: outcome.Blocked, Message: redact.Text(err.Error(), in.Flag)}
	}
	e, err := manifests.PortEndpoints(in, allotNodePorts(f.Services))
	if err != nil {
		t.Fatal(err)
	}
	deployments := manifests.PlanWorkloads(in, e)
	var objects []client.Object
	objects = append(objects, asObjects(f.NetworkPolicies)...)
	objects = append(objects, asObjects(f.CiliumNetworkPolicies)...)
	objects = append(objects, asObjects(f.Services)...)
	objects = append(objects, asObjects(f.HTTPRoutes)...)
	objects = append(objects, asObjects(f.TLSRoutes)...)
	objects = append(objects, asObjects(f.ConfigMaps)...)
	objects = append(objects, asObjects(f.DisruptionBudgets)...)
	objects = append(objects, asObjects(deployments)...)
	names := sets.New[string]()
	for _, o := range objects {
		key := typeName(o) + " " + o.GetName()
		if names.Has(key) {
			t.Errorf("%s is planned twice", key)
		}
		names.Insert(key)
		if o.GetNamespace() != in.Namespace() {
			t.Errorf("%s is planned in the namespace %q", key, o.GetNamespace())
		}
		for _, msg := range validation.IsDNS1123Subdomain(o.GetName()) {
			t.Errorf("%s: %s", key, msg)
		}
		checkMeta(t, key, o, bergv1.LabelManagedBy, bergv1.LabelComponent, bergv1.LabelChallenge, bergv1.LabelChallengeNamespace,
			bergv1.LabelOwnerID, bergv1.LabelInstanceID, bergv1.LabelContainer, bergv1.LabelHostname)
		if data, err := json.Marshal(o); err != nil || len(data) > 1<<20 {
			t.Errorf("%s: %d bytes, error %v", key, len(data), err)
		}
	}
	for _, d := range deployments {
		checkPod(t, d.Name, d.Spec.Template)
	}
	return nil
}

func checkMeta(t *testing.T, key string, o client.Object, labels ...string) {
	t.Helper()
	for name, value := range o.GetLabels() {
		if !slices.Contains(labels, name) {
			t.Errorf("%s: label %s", key, name)
		}
		for _, msg := range validation.IsValidLabelValue(value) {
			t.Errorf("%s: label %s=%q: %s", key, name, value, msg)
		}
	}
	for name := range o.GetAnnotations() {
		if !strings.HasPrefix(name, "berg.norelect.ch/") {
			t.Errorf("%s: annotation %s", key, name)
		}
	}
}

// checkPod lists everything that a pod of an instance may have. With anything else, an author
// has escaped.
func checkPod(t *testing.T, name string, template corev1.PodTemplateSpec) {
	t.Helper()
	wanted := []string{bergv1.LabelInstanceID, "cluster-autoscaler.kubernetes.io/safe-to-evict", "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth"}
	if got := slices.Sorted(maps.Keys(template.Annotations)); !slices.Equal(got, wanted) {
		t.Errorf("%s: annotations %v", name, got)
	}
	spec := template.Spec
	if len(spec.Containers) != 1 {
		t.Fatalf("%s: %d containers", name, len(spec.Containers))
	}
	for _, v := range spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory && v.EmptyDir.SizeLimit != nil {
			memory := spec.Containers[0].Resources.Limits[corev1.ResourceMemory]
			if v.EmptyDir.SizeLimit.Cmp(memory) > 0 {
				t.Errorf("%s: %s of shared memory, above the limit of %s", name, v.EmptyDir.SizeLimit, &memory)
			}
			continue
		}
		if v.ConfigMap == nil || v.ConfigMap.Name != "flag-content" && v.ConfigMap.Name != "flag-executable" {
			t.Errorf("%s: volume %+v", name, v)
		}
	}
	c := spec.Containers[0]
	bounds := corev1.PodSpec{
		Hostname: spec.Hostname, EnableServiceLinks: spec.EnableServiceLinks, AutomountServiceAccountToken: new(bool),
		TerminationGracePeriodSeconds: spec.TerminationGracePeriodSeconds, RuntimeClassName: spec.RuntimeClassName,
		ImagePullSecrets: spec.ImagePullSecrets, NodeSelector: spec.NodeSelector, Volumes: spec.Volumes,
		SecurityContext: &corev1.PodSecurityContext{
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			Sysctls:        []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}, {Name: "net.ipv4.ping_group_range", Value: "0 2147483647"}},
		},
		Containers: []corev1.Container{{
			Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, ImagePullPolicy: c.ImagePullPolicy, Env: c.Env, Ports: c.Ports, Resources: c.Resources,
			ReadinessProbe: c.ReadinessProbe, LivenessProbe: c.LivenessProbe, StartupProbe: c.StartupProbe, VolumeMounts: c.VolumeMounts,
			SecurityContext: &corev1.SecurityContext{
				Privileged: new(bool), AllowPrivilegeEscalation: c.SecurityContext.AllowPrivilegeEscalation, Capabilities: c.SecurityContext.Capabilities,
			},
		}},
	}
	if got, want := asJSON(t, spec), asJSON(t, bounds); got != want {
		t.Errorf("%s: the pod has more than it may:\n%s\n%s", name, got, want)
	}
	for _, p := range c.Ports {
		if p.HostPort != 0 || p.HostIP != "" {
			t.Errorf("%s: host port %+v", name, p)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil || len(validation.IsEnvVarName(e.Name)) > 0 {
			t.Errorf("%s: variable %q", name, e.Name)
		}
	}
	checkProbes(t, name, c)
	if len(c.Resources.Requests) != 3 || len(c.Resources.Limits) != 3 {
		t.Errorf("%s: not every resource is bounded: %+v", name, c.Resources)
	}
	for resource, request := range c.Resources.Requests {
		if limit := c.Resources.Limits[resource]; request.Cmp(limit) > 0 || request.Sign() <= 0 {
			t.Errorf("%s: request %s of %s, limit %s", name, request.String(), resource, limit.String())
		}
	}
}

func checkProbes(t *testing.T, name string, c corev1.Container) {
	t.Helper()
	if p := c.StartupProbe; p != nil && (p.TCPSocket == nil || p.FailureThreshold < 1) {
		t.Errorf("%s: a startup probe of something else than a port: %+v", name, p)
	}
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		if p != nil && (p.HTTPGet != nil && p.HTTPGet.Host != "" || p.TCPSocket != nil && p.TCPSocket.Host != "") {
			t.Errorf("%s: a probe of another host: %+v", name, p)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// reread returns a snapshot as it is read again.
func reread(t *testing.T, s manifests.Snapshot) (again manifests.Snapshot) {
	t.Helper()
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &again); err != nil {
		t.Fatal(err)
	}
	return again
}
