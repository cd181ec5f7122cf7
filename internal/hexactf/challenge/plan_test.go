package challenge

import (
	"bytes"
	stdcmp "cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func testConfig(t testing.TB, overrides map[string]string) config.HexaCTF {
	t.Helper()
	var cfg config.HexaCTF
	_, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return overrides[name] }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newComponent(name string, serviceType corev1.ServiceType, ports ...int32) hexactfv1.Component {
	c := hexactfv1.Component{Name: name, Deployment: &hexactfv1.Deployment{Spec: hexactfv1.DeploymentSpec{
		Template: hexactfv1.PodTemplate{Spec: hexactfv1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "example.com/" + name}}}},
	}}}
	if len(ports) > 0 {
		c.Service = &hexactfv1.Service{Spec: corev1.ServiceSpec{Type: serviceType}}
		for _, p := range ports {
			c.Service.Spec.Ports = append(c.Service.Spec.Ports, corev1.ServicePort{Port: p})
		}
	}
	return c
}

func definitionOf(components ...hexactfv1.Component) *hexactfv1.ChallengeDefinition {
	return &hexactfv1.ChallengeDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: "event", Name: "web"},
		Spec:       hexactfv1.ChallengeDefinitionSpec{Components: components},
	}
}

func testInputs(cfg config.HexaCTF, components ...hexactfv1.Component) Inputs {
	return Inputs{
		UID:      "7c0ffee0-1111-4222-8333-444455556666",
		Name:     types.NamespacedName{Namespace: "event", Name: "challenge-42-alice"},
		Identity: Identity{ChallengeID: "42", User: "alice"},
		Snapshot: *newSnapshot(definitionOf(components...), cfg),
		Config:   cfg,
	}
}

// What is written to the cluster, object by object: a change shows here first.
func TestPlanGolden(t *testing.T) {
	web, db := newComponent("web", corev1.ServiceTypeNodePort, 8080), newComponent("db", "", 5432)
	web.Deployment.Spec.Replicas = ptr.To[int32](2)
	web.Deployment.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "players"}
	web.Service.Spec.Ports[0].TargetPort = intstr.FromString("http")
	for name, tc := range map[string]struct {
		env       map[string]string
		published int32
	}{
		"isolated": {published: 31000},
		"internet": {env: map[string]string{"HEXACTF_EGRESS": "internet", "HEXACTF_POD_CIDRS": "198.51.100.0/24"}},
		"open":     {env: map[string]string{"HEXACTF_ISOLATION": "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			in := testInputs(testConfig(t, tc.env), web, db)
			in.Endpoint = tc.published
			got := render(t, plan(in))
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v: run go test ./internal/hexactf/challenge -update and read what it writes", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("the plan differs from %s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// A challenge may reach what the settings allowed at its start.
func TestEgressIsThatOfTheStart(t *testing.T) {
	internet := testConfig(t, map[string]string{"HEXACTF_EGRESS": "internet", "HEXACTF_POD_CIDRS": "198.51.100.0/24"})
	closed := testConfig(t, nil)
	web := newComponent("web", corev1.ServiceTypeNodePort, 80)
	c := testChallenge()
	for name, tc := range map[string]struct{ then, now config.HexaCTF }{"opened": {closed, internet}, "closed": {internet, closed}} {
		raw, err := newSnapshot(definitionOf(web), tc.then).raw()
		if err != nil {
			t.Fatal(err)
		}
		c.Status.DefinitionSnapshot = raw
		started, err := decodeSnapshot(c)
		if err != nil {
			t.Fatal(err)
		}
		in := testInputs(tc.now, web)
		in.Snapshot = *started
		if diff := cmp.Diff(plan(testInputs(tc.then, web)).NetworkPolicies, plan(in).NetworkPolicies); diff != "" {
			t.Errorf("%s: the policy differs (-then +now):\n%s", name, diff)
		}
	}
}

func render(t *testing.T, p Plan) []byte {
	t.Helper()
	var all []any
	for _, policy := range p.NetworkPolicies {
		all = append(all, policy)
	}
	for _, s := range p.Services {
		all = append(all, s)
	}
	for _, d := range p.Deployments {
		all = append(all, d)
	}
	var out bytes.Buffer
	for _, o := range all {
		data, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	return out.Bytes()
}

func TestPlanIsTheSameEachTime(t *testing.T) {
	in := testInputs(testConfig(t, nil), newComponent("web", corev1.ServiceTypeNodePort, 80, 443), newComponent("db", "", 5432))
	first := render(t, plan(in))
	if !bytes.Equal(first, render(t, plan(in))) {
		t.Error("two plans of the same inputs differ")
	}
}

// Names and labels of the longest labels and names are still names and labels, and those of
// different components and players differ.
func TestNamesFit(t *testing.T) {
	long := strings.Repeat("a", 63)
	cfg := testConfig(t, nil)
	met := map[string]bool{}
	for _, id := range []Identity{{"1", "bob"}, {long, long}, {long, long[1:] + "b"}, {"1", long}} {
		for _, c := range []string{"web", long, long[1:]} {
			in := testInputs(cfg, newComponent(c, corev1.ServiceTypeNodePort, 80), newComponent("other", ""))
			in.Identity = id
			in.Name.Name = strings.Repeat("n", 253)
			p := plan(in)
			svc, dep := p.Services[0], p.Deployments[0]
			if met[svc.Name] || met[dep.Name] {
				t.Errorf("%s or %s is the name of two", svc.Name, dep.Name)
			}
			met[svc.Name], met[dep.Name] = true, true
			if msgs := validation.IsDNS1035Label(svc.Name); len(msgs) > 0 {
				t.Errorf("Service %s: %v", svc.Name, msgs)
			}
			if msgs := validation.IsDNS1123Subdomain(dep.Name); len(msgs) > 0 {
				t.Errorf("Deployment %s: %v", dep.Name, msgs)
			}
			for _, policy := range p.NetworkPolicies {
				if msgs := validation.IsDNS1123Subdomain(policy.Name); len(msgs) > 0 {
					t.Errorf("NetworkPolicy %s: %v", policy.Name, msgs)
				}
			}
			for key, value := range dep.Labels {
				if msgs := validation.IsValidLabelValue(value); len(msgs) > 0 {
					t.Errorf("label %s=%s: %v", key, value, msgs)
				}
			}
		}
	}
	in := testInputs(cfg)
	if got := in.prefix("web"); got != "chall-42-web-alice" {
		t.Errorf("a short prefix is %s", got)
	}
}

// A port is open where it is published, and at no other component; one component needs one policy.
func TestPublishedPortsAreOpenAtTheirComponent(t *testing.T) {
	web, admin, db := newComponent("web", corev1.ServiceTypeNodePort, 80, 443), newComponent("admin", corev1.ServiceTypeLoadBalancer, 80), newComponent("db", "", 80)
	for _, tc := range []struct {
		components []hexactfv1.Component
		want       []string
	}{
		{[]hexactfv1.Component{web}, []string{"whole: own, 80 443"}},
		{[]hexactfv1.Component{db}, []string{"whole: own"}},
		{[]hexactfv1.Component{web, db}, []string{"chall-42-web-alice: 80 443", "whole: own"}},
		{[]hexactfv1.Component{db, admin, web}, []string{"chall-42-admin-alice: 80", "chall-42-web-alice: 80 443", "whole: own"}},
	} {
		var got []string
		for _, policy := range plan(testInputs(testConfig(t, nil), tc.components...)).NetworkPolicies {
			about := stdcmp.Or(policy.Spec.PodSelector.MatchLabels[hexactfv1.LabelInstance], "whole")
			var opens []string
			for _, rule := range policy.Spec.Ingress {
				if rule.From != nil {
					opens = append(opens, "own")
					continue
				}
				var ports []string
				for _, port := range rule.Ports {
					ports = append(ports, port.Port.String())
				}
				opens = append(opens, strings.Join(ports, " "))
			}
			got = append(got, about+": "+strings.Join(opens, ", "))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%d components: %q, want %q", len(tc.components), got, tc.want)
		}
	}
}

func TestOfSeveralNodePortsTheLastIsTheEndpoint(t *testing.T) {
	first, second := newComponent("a", corev1.ServiceTypeNodePort, 80), newComponent("b", corev1.ServiceTypeNodePort, 81, 82)
	in := testInputs(testConfig(t, nil), first, second, newComponent("c", "", 83), newComponent("d", ""))
	in.Endpoint = 30001
	p := plan(in)
	if len(p.Services) != 3 || len(p.Deployments) != 4 {
		t.Fatalf("%d Services and %d Deployments", len(p.Services), len(p.Deployments))
	}
	ports := func(s *corev1.Service) (all []int32) {
		for _, p := range s.Spec.Ports {
			all = append(all, p.NodePort)
		}
		return all
	}
	if !slices.Equal(ports(p.Services[0]), []int32{0}) || !slices.Equal(ports(p.Services[1]), []int32{30001, 0}) || !slices.Equal(ports(p.Services[2]), []int32{0}) {
		t.Errorf("node ports asked for: %v %v %v", ports(p.Services[0]), ports(p.Services[1]), ports(p.Services[2]))
	}
	second.Service.Spec.Ports[0].NodePort = 30500
	in = testInputs(in.Config, second)
	in.Endpoint = 30001
	if got := plan(in).Services[0].Spec.Ports[0].NodePort; got != 30500 {
		t.Errorf("the node port of the definition became %d", got)
	}
}

// Dashes join the parts of a name and may be in each of them. No two problems, components or players share names, also in
// different definitions. Names that have one reading are those of the contract.
func TestObjectsOfTwoChallengesHaveDifferentNames(t *testing.T) {
	prefix := func(id, component, user string) string {
		in := testInputs(testConfig(t, nil), newComponent(component, corev1.ServiceTypeNodePort, 80))
		in.Identity = Identity{ChallengeID: id, User: user}
		got := in.prefix(component)
		if msgs := validation.IsDNS1035Label(got + serviceSuffix); len(msgs) > 0 {
			t.Errorf("%s: %v", got, msgs)
		}
		if msgs := validation.IsDNS1123Label(got + deploymentSuffix); len(msgs) > 0 {
			t.Errorf("%s: %v", got, msgs)
		}
		return got
	}
	long := strings.Repeat("a", 60)
	seen := map[string]string{}
	parts := []string{"7", "web", "c", "7-web", "web-c", "7-web-web", "web-web", "db", "db-admin", "admin-bob", "bob", "a", "a-b", "a-b-c", long, "a-" + long, long + "-a"}
	for _, id := range parts {
		for _, component := range parts {
			for _, user := range parts {
				got := prefix(id, component, user)
				described := fmt.Sprintf("problem %s, component %s, user %s", id, component, user)
				if other, taken := seen[got]; taken {
					t.Fatalf("%s is the prefix of two: %s; %s", got, other, described)
				}
				seen[got] = described
				// No player can be called what the hash made of another one.
				if plain := strings.Split(got, "-"); strings.HasPrefix(got, "chall--") {
					last := plain[len(plain)-1]
					if prefix(id, component, user+"-"+last) == got || prefix("7", "web", strings.TrimPrefix(got, "chall-7-web-")) == got {
						t.Errorf("%s is the prefix of another user too", got)
					}
				}
			}
		}
	}
	for want, id := range map[string][3]string{
		"chall-42-web-alice":         {"42", "web", "alice"},
		"chall-42-web-player-1-blue": {"42", "web", "player-1-blue"},
	} {
		if got := prefix(id[0], id[1], id[2]); got != want {
			t.Errorf("the contract's name %s became %s", want, got)
		}
	}
}
