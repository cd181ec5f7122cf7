package check

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func testConfig(t *testing.T, overrides map[string]string) config.Berg {
	t.Helper()
	var cfg config.Berg
	if _, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return overrides[name] }, nil); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestPlanGolden(t *testing.T) {
	amount := func(text string) *bergv1.Amount { a := bergv1.Amount(text); return &a }
	for name, tc := range map[string]struct {
		env       map[string]string
		check     func(*bergv1.ChallengeCheck)
		challenge func(*bergv1.Challenge)
	}{
		"cilium":     {env: map[string]string{"NETWORK_POLICY": "cilium"}},
		"kubernetes": {env: map[string]string{"NETWORK_POLICY": "kubernetes"}},
		"both-with-known-networks": {
			env: map[string]string{"NETWORK_POLICY": "both", "GATEWAY_DATAPLANE_NAMESPACES": "traefik,envoy", "CLUSTER_POD_CIDRS": "10.244.0.0/16,2001:db8:2::/64"},
		},
		"everything-said": {
			env: map[string]string{"NETWORK_POLICY": "kubernetes", "PULL_SECRET_NAME": "registry", "CHALLENGE_IMAGE_PULL_POLICY": "Always"},
			check: func(c *bergv1.ChallengeCheck) {
				c.Spec.Solver = bergv1.Solver{
					Image: "example.com/solver:2", Command: []string{"sh", "-c", "solve > $FLAG_FILE"}, RuntimeClassName: "gvisor",
					Env: []bergv1.SolverVariable{{Name: "LEVEL", Value: "$(HOME)"}, {Name: "WEB_URL", Value: "replaced"}, {Name: "HOME", Value: "/srv"}},
					// A request alone raises the limit, a limit alone lowers the request.
					ResourceRequests: &bergv1.Resources{Memory: amount("1Gi")}, ResourceLimits: &bergv1.Resources{CPU: amount("50m")},
				}
			},
			challenge: func(c *bergv1.Challenge) { c.Spec.Containers[0].Ports = c.Spec.Containers[0].Ports[:1] },
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := Inputs{Check: checkOf(), Challenge: challengeOf(), Config: testConfig(t, tc.env)}
			if tc.check != nil {
				tc.check(in.Check)
			}
			if tc.challenge != nil {
				tc.challenge(in.Challenge)
			}
			in.Instance = instance(in.Check, flagOfTests)
			in.Instance.UID = "7c0ffee0-1111-4222-8333-444455556666"
			in.Instance.Status.Namespace = "challenge-" + in.Instance.Spec.OwnerID
			in.Instance.Status.Services = []bergv1.ServiceEndpoint{
				{Name: "web", Hostname: "1234.challenges.example.com", Port: 443, Protocol: "TCP", TLS: true, URL: "https://1234.challenges.example.com"},
				{Name: "game", Hostname: "challenges.example.com", Port: 30001, Protocol: "UDP", URL: "udp://challenges.example.com:30001"},
				{Name: "db:5432", Hostname: "challenges.example.com", Port: 30002, Protocol: "TCP", URL: "tcp://challenges.example.com:30002"},
			}
			in.Way = wayTo(in.Instance, in.Challenge)
			got := render(t, in)
			if bytes.Contains(bytes.ReplaceAll(got, []byte("  flag: "+flagOfTests), nil), []byte(flagOfTests)) {
				t.Error("the flag stands elsewhere than in the instance")
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.MkdirAll("testdata", 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v: run with -update", err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got; run with -update if it should be so):\n%s", golden, diff)
			}
		})
	}
}

func render(t *testing.T, in Inputs) []byte {
	t.Helper()
	all := []client.Object{in.Instance, checkNamespace(in.Check)}
	all = append(all, policies(in)...)
	if name := in.Config.Challenge.PullSecretName; name != "" {
		all = append(all, pullSecret(in.Check, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: name, UID: "s", Labels: map[string]string{"of": "another"}},
			Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")},
		}))
	}
	all = append(all, job(in))
	var out bytes.Buffer
	for _, o := range all {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes()
}
