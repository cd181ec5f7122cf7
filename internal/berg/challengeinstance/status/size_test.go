package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// oneWebServer is a Challenge as most are, and largeChallenge one as large as they get.
const oneWebServer = `{hostname: web, image: "registry.example.com/guestbook@sha256:0000000000000000000000000000000000000000000000000000000000000000",
  environment: {ADMIN_PASSWORD: correct-horse-battery-staple, DATABASE: sqlite, TITLE: Guestbook}, ports: [{name: web, port: 8080, type: publicHttpRoute}],
  readinessProbe: {httpGet: {path: /healthz, port: 8080}}, resourceLimits: {cpu: 500m, memory: 256Mi}, dynamicFlag: {env: {name: FLAG}}}`

func largeChallenge() string {
	variables := make([]string, 64)
	for n := range variables {
		variables[n] = fmt.Sprintf("V%d: %s", n, strings.Repeat("x", 64))
	}
	all := make([]string, 16)
	for n := range all {
		all[n] = fmt.Sprintf("{hostname: c%d, image: i, environment: {%s}, ports: [{port: 80}]}", n, strings.Join(variables, ", "))
	}
	return strings.Join(all, ", ")
}

// runningInstance returns an instance of some containers that Runs, with the status that the operator writes.
func runningInstance(t *testing.T, containers string) *bergv1.ChallengeInstance {
	t.Helper()
	cfg := testConfig(t, nil).Challenge
	c := &bergv1.Challenge{}
	if err := yaml.Unmarshal([]byte("{containers: ["+containers+"]}"), &c.Spec); err != nil {
		t.Fatal(err)
	}
	i := testInstance(func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "flag{only_for_alice}" })
	out := Outcome{Observed: Observed{Candidate: Candidate{Instance: i, Challenge: c}, Policies: cfg.NetworkPolicy.On(false, false)}}
	out.Adopted = &Adoption{Snapshot: manifests.NewSnapshot(c, cfg), Revision: "challenge-revision-" + strings.Repeat("0", 64)}
	out.Problem = BeingBuilt
	Identify(i, Identity{ID: uuid.New(), Seed: strings.Repeat("A", 26), NamespaceTokenHash: strings.Repeat("0", 64)}, noon)
	compute(out, cfg, noon)

	pinned := out.Adopted.Snapshot
	out.Adopted, out.Problem, out.Pinned = nil, nil, &pinned
	out.Written = Written{Namespace: noon, Objects: noon, NamespaceUID: "7c0ffee0-1111-4222-8333-444455556666"}
	for n, container := range pinned.Containers {
		out.Pods = append(out.Pods, pod(container.Hostname, true))
		for _, p := range container.Ports {
			if p.EffectiveType() == bergv1.PublicHTTPRoute {
				host := fmt.Sprintf("7c0ffee0-1111-4222-8333-44445555%04d.challenges.example.com", n)
				out.Endpoints = append(out.Endpoints, manifests.Endpoint{Service: &bergv1.ServiceEndpoint{
					Name: p.Name, Hostname: host, Port: 443, Protocol: "TCP", AppProtocol: "http", TLS: true, URL: "https://" + host,
				}})
			}
		}
	}
	compute(out, cfg, noon.Add(time.Second))
	at := metav1.NewMicroTime(noon.Add(time.Second))
	i.Status.Start = &bergv1.StartTimes{
		NamespaceCreatedAt: &at, ObjectsWrittenAt: &at, ScheduledAt: &at, SandboxesCreatedAt: &at, ImagesPulledAt: &at, ContainersStartedAt: &at, PodsReadyAt: &at,
	}
	if i.Status.Phase != bergv1.PhaseRunning {
		t.Fatalf("it is %s: %+v", i.Status.Phase, i.Status.Conditions)
	}
	return i
}

// docs/performance.md has the size. It does not depend on the Challenge.
func TestSizeOfAStatus(t *testing.T) {
	for name, containers := range map[string]string{"one web server": oneWebServer, "16 containers with 64 variables": largeChallenge()} {
		data, err := json.Marshal(runningInstance(t, containers).Status)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", name, len(data))
		if len(data) > 5<<10 {
			t.Errorf("%s: the status has %d bytes: %s", name, len(data), data)
		}
	}
}
