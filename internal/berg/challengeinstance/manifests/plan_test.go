package manifests

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const testFlag = "flag{golden}"

// firstNodePort is what the stand-in for the API server allots first.
const firstNodePort = 30000

func testConfig(t testing.TB, overrides map[string]string) config.Berg {
	t.Helper()
	var cfg config.Berg
	_, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return overrides[name] }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func testInputs(cfg config.Berg, challenge Snapshot) Inputs {
	cfg.Challenge.NetworkPolicy = cfg.Challenge.NetworkPolicy.On(true, true)
	return Inputs{
		UID:                "7c0ffee0-1111-4222-8333-444455556666",
		Name:               types.NamespacedName{Namespace: "berg", Name: "owner-1"},
		InstanceID:         "01920000-0000-7000-8000-000000000001",
		Seed:               "7c0ffee0-1111-4222-8333-444455556666",
		OwnerID:            "a1b2c3d4-e5f6-7890-abcd-ef1234567890",
		Flag:               testFlag,
		ChallengeName:      "golden",
		ChallengeNamespace: "berg",
		Challenge:          challenge,
		Config:             cfg.Challenge,
		Gateway:            cfg.Gateway,
	}
}

// allotNodePorts plays the API server's part in a plan.
func allotNodePorts(all []*corev1.Service) []*corev1.Service {
	next := int32(firstNodePort)
	out := make([]*corev1.Service, 0, len(all))
	for _, s := range all {
		s = s.DeepCopy()
		if s.Spec.Type == corev1.ServiceTypeNodePort {
			for i := range s.Spec.Ports {
				s.Spec.Ports[i].NodePort = next
				next++
			}
		}
		out = append(out, s)
	}
	return out
}

func TestPlanGolden(t *testing.T) {
	configs := map[string]map[string]string{
		"headless-and-pull-secret": {"CHALLENGE_ADDITIONAL_HEADLESS_SERVICE": "true", "PULL_SECRET_NAME": "registry", "CHALLENGE_RUNTIME_CLASS_NAME": "kata"},
		"kubernetes-policy":        {"NETWORK_POLICY": "kubernetes"},
		"both-policies": {
			"NETWORK_POLICY": "both", "GATEWAY_DATAPLANE_NAMESPACES": "traefik",
			"CLUSTER_NODE_CIDRS": "192.0.2.0/24,2001:db8:1::/64", "CLUSTER_POD_CIDRS": "10.244.0.0/16,2001:db8:2::/64",
		},
		"nested-sandbox":       {"CHALLENGE_NESTED_SECCOMP_PROFILE": "berg-nested.json"},
		"dataplane-namespaces": {"GATEWAY_DATAPLANE_NAMESPACES": "traefik,envoy", "CHALLENGE_HTTP_PORT": "8000", "CLUSTER_DOMAIN": "k8s.example"},
	}
	inputs, err := filepath.Glob("testdata/plan/*.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, path := range inputs {
		if strings.HasSuffix(path, ".golden.yaml") {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var spec bergv1.ChallengeSpec
			if err := yaml.UnmarshalStrict(data, &spec); err != nil {
				t.Fatal(err)
			}
			s := Normalize(&bergv1.Challenge{Spec: spec})
			cfg := testConfig(t, configs[name])
			if errs := s.Validate(rules.AllowedBy(cfg.Challenge)); len(errs) > 0 {
				t.Fatalf("the input is not valid: %v", errs.ToAggregate())
			}
			in := testInputs(cfg, s)
			got := renderPlan(t, in)
			golden := strings.TrimSuffix(path, ".yaml") + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v: run go test ./internal/berg/challengeinstance -update and read what it writes", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the plan differs from %s (-want +got):\n%s", golden, diff)
			}
			if again := renderPlan(t, in); !bytes.Equal(got, again) {
				t.Error("two plans of the same inputs differ")
			}
		})
	}
}

func renderPlan(t *testing.T, in Inputs) []byte {
	t.Helper()
	f, err := PlanFoundation(in)
	if err != nil {
		t.Fatal(err)
	}
	e, err := PortEndpoints(in, allotNodePorts(f.Services))
	if err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	objects = append(objects, f.Namespace)
	objects = append(objects, asObjects(f.NetworkPolicies)...)
	objects = append(objects, asObjects(f.CiliumNetworkPolicies)...)
	objects = append(objects, asObjects(f.Services)...)
	objects = append(objects, asObjects(f.HTTPRoutes)...)
	objects = append(objects, asObjects(f.TLSRoutes)...)
	for _, c := range f.ConfigMaps {
		if _, ok := c.BinaryData["executable"]; ok {
			// Its bytes are the business of package flagexec.
			c.BinaryData["executable"] = []byte("(a program)")
		}
		objects = append(objects, c)
	}
	objects = append(objects, asObjects(f.DisruptionBudgets)...)
	objects = append(objects, asObjects(PlanWorkloads(in, e))...)

	var out bytes.Buffer
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n# " + strings.TrimPrefix(strings.TrimPrefix(typeName(o), "*"), "v1.") + "\n")
		out.Write(data)
	}
	status, err := yaml.Marshal(map[string]any{"services": PublicServices(e)})
	if err != nil {
		t.Fatal(err)
	}
	out.WriteString("---\n# status\n")
	out.Write(status)
	return out.Bytes()
}

func asObjects[T client.Object](in []T) []client.Object {
	out := make([]client.Object, 0, len(in))
	for _, o := range in {
		out = append(out, o)
	}
	return out
}

// Names and paths that players must not guess stay for the life of an instance
// and change with the next one.
func TestSecretsOfAnInstance(t *testing.T) {
	cfg := testConfig(t, nil)
	one := testInputs(cfg, Snapshot{})
	file := bergv1.FlagFile{Path: "/{entropy}/flag"}

	again := testInputs(cfg, Snapshot{Containers: []bergv1.Container{{Hostname: "x"}}})
	if one.hostname("web", "80") != again.hostname("web", "80") || one.path("web", file) != again.path("web", file) {
		t.Error("the same instance got other names")
	}
	nextLife := one
	nextLife.InstanceID = "01920000-0000-7000-8000-000000000002"
	otherCR := one
	otherCR.Seed = "another"
	for name, other := range map[string]Inputs{"next life": nextLife, "other resource": otherCR} {
		if one.hostname("web", "80") == other.hostname("web", "80") || one.path("web", file) == other.path("web", file) {
			t.Errorf("%s: the same names", name)
		}
	}
	if one.hostname("web", "80") == one.hostname("web", "81") || one.hostname("web", "80") == one.hostname("db", "80") {
		t.Error("two ports share a host name")
	}
	if got := one.path("web", file); len(got) != len("/")+12+len("/flag") {
		t.Errorf("path %q does not hold 12 digits", got)
	}
}

func TestFlagReachesTheContainerUnchanged(t *testing.T) {
	in := testInputs(testConfig(t, nil), Snapshot{})
	in.Flag = "flag{$$HOME$(PATH)$}"
	env := environment(in, bergv1.Container{Hostname: "a", DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}}, nil)
	// Kubernetes turns $$ into $ and leaves everything else alone.
	if got := strings.ReplaceAll(env[len(env)-1].Value, "$$", "$"); got != in.Flag {
		t.Errorf("the container sees %q", got)
	}
}

// What Kubernetes expands in the values of variables reaches the program as the author wrote it.
func TestVariablesReachTheContainerUnchanged(t *testing.T) {
	const written, want = "pa$$word $(A) $$(A) $2b$12$x", "pa$$$$word $$(A) $$$$(A) $$2b$$12$$x"
	c := bergv1.Container{Hostname: "a", Environment: map[string]bergv1.EnvironmentValue{"V": bergv1.StringValue(written)}}
	env := environment(testInputs(testConfig(t, nil), Snapshot{}), c, nil)
	if env[0].Name != "V" || env[0].Value != want {
		t.Errorf("%s=%q, want %q", env[0].Name, env[0].Value, want)
	}
}

// The annotations of a release must be found by the next one.
func TestOwner(t *testing.T) {
	owner := OwnerFor(&bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{UID: "u"}})
	if owner.Annotation != bergv1.AnnotationInstanceUID || owner.UID != "u" || len(owner.Labels) > 0 {
		t.Errorf("the proof is %+v", owner)
	}
	if got := apply.ChecksumAnnotation(owner.Annotation); got != "berg.norelect.ch/plan-checksum" {
		t.Errorf("the checksum stands in %s", got)
	}
	if got := OwnershipLabels.Selector().String(); got != "app.kubernetes.io/managed-by=berg" {
		t.Errorf("objects are found by %s", got)
	}
}

// Host names and paths of an instance follow from its seed, and not from its UID, which events name.
func TestSecretsFollowFromTheSeed(t *testing.T) {
	in := testInputs(testConfig(t, nil), Snapshot{})
	in.UID, in.InstanceID = "7c3f0c52-9a4b-4d8e-8c3f-2b1a0d9e8f7c", "01890a5d-ac96-774b-bcce-b302099a8057"
	in.Seed = "one"
	one, path := in.hostname("web", "http"), in.path("web", bergv1.FlagFile{Path: "/{entropy}"})
	in.UID = "another"
	if again := in.hostname("web", "http"); again != one {
		t.Errorf("the host name is %s, and %s for another UID", one, again)
	}
	in.Seed = "two"
	if in.hostname("web", "http") == one || in.path("web", bergv1.FlagFile{Path: "/{entropy}"}) == path {
		t.Error("two seeds have the same host name or path")
	}
}

func typeName(o any) string { return reflect.TypeOf(o).String() }

func TestTheSourceIsALabelOfTheNamespaceAndOfPods(t *testing.T) {
	in := testInputs(testConfig(t, nil), Snapshot{Containers: []bergv1.Container{{Hostname: "web", Image: "i"}}})
	for source, want := range map[string]bool{"": false, "team-1": true} {
		in.Source = source
		f, err := PlanFoundation(in)
		if err != nil {
			t.Fatal(err)
		}
		d := PlanWorkloads(in, nil)[0]
		for where, labels := range map[string]map[string]string{"namespace": f.Namespace.Labels, "pods": d.Spec.Template.Labels} {
			if got, ok := labels[bergv1.LabelSource]; ok != want || got != source {
				t.Errorf("%s of source %q: %v", where, source, labels)
			}
		}
		// A selector cannot be changed.
		if _, matches := d.Spec.Selector.MatchLabels[bergv1.LabelSource]; matches {
			t.Error("the source selects pods")
		}
	}
}
