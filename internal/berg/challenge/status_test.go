package challenge

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

func TestAccepted(t *testing.T) {
	web := bergv1.Container{Hostname: "web", Image: "example.com/web:1", Ports: []bergv1.Port{{Port: 80, Type: bergv1.PublicPort}}}
	for name, tc := range map[string]struct {
		modify func(*bergv1.ChallengeSpec)
		status metav1.ConditionStatus
		says   string
	}{
		"jail":       {func(s *bergv1.ChallengeSpec) { s.Containers[0].Sandbox = bergv1.SandboxNested }, metav1.ConditionFalse, "spec.containers[0].sandbox: nested needs user namespaces"},
		"good":       {func(*bergv1.ChallengeSpec) {}, metav1.ConditionTrue, "can run"},
		"static":     {func(s *bergv1.ChallengeSpec) { s.Containers = nil }, metav1.ConditionTrue, "nothing to run"},
		"capability": {func(s *bergv1.ChallengeSpec) { s.Containers[0].AdditionalCapabilities = []string{"SYS_ADMIN"} }, metav1.ConditionFalse, "spec.containers[0].additionalCapabilities[0]"},
		"warning":    {func(s *bergv1.ChallengeSpec) { s.Containers[0].Ports = nil }, metav1.ConditionTrue, "Probably a mistake: spec.containers: has no port that players can reach"},
		"flag":       {func(s *bergv1.ChallengeSpec) { s.Flag = "secret"; s.Containers[0].Image = "secret " }, metav1.ConditionFalse, "spec.containers[0].image"},
	} {
		c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 3}, Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{web}}}
		// The condition of the controller that pulls images stays.
		c.Status.Conditions = []metav1.Condition{{Type: bergv1.ChallengeConditionImagesReady, Status: metav1.ConditionTrue}}
		tc.modify(&c.Spec)
		s := state{nodes: nodes.Support{None: true}}
		problems := check(c, &s, rules.Settings{Allowed: rules.Allowed{Capabilities: []string{"KILL"}, NestedSandbox: true}})
		ready := computeStatus(c, s, problems, time.Unix(1000, 0))
		got := accepted(c)
		if got == nil || got.Status != tc.status || ready.Status != tc.status || !strings.Contains(got.Message, tc.says) || got.ObservedGeneration != 3 {
			t.Errorf("%s: %+v, ready %+v", name, got, ready)
		}
		if strings.Contains(got.Message, "secret") {
			t.Errorf("%s: the flag is in %s", name, got.Message)
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, bergv1.ChallengeConditionImagesReady) {
			t.Errorf("%s: another condition is lost", name)
		}
		if isStale(c) {
			t.Errorf("%s: a fresh status is stale", name)
		}
		if c.Generation++; !isStale(c) {
			t.Errorf("%s: an edit leaves the status fresh", name)
		}
	}
}

// The condition turns True when a node can run the sandbox.
func TestAcceptedFollowsTheNodes(t *testing.T) {
	c := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{{
		Hostname: "jail", Image: "example.com/jail:1", Sandbox: bergv1.SandboxNested, Ports: []bergv1.Port{{Port: 80, Type: bergv1.PublicPort}},
	}}}}
	for _, step := range []struct {
		support nodes.Support
		status  metav1.ConditionStatus
		reason  string
	}{
		{nodes.Support{None: true}, metav1.ConditionFalse, bergv1.ReasonNoSuitableNode},
		{nodes.Support{}, metav1.ConditionTrue, bergv1.ChallengeAccepted},
		{nodes.Support{All: true}, metav1.ConditionTrue, bergv1.ChallengeAccepted},
		{nodes.Support{None: true}, metav1.ConditionFalse, bergv1.ReasonNoSuitableNode},
	} {
		s := state{nodes: step.support}
		computeStatus(c, s, check(c, &s, rules.Settings{Allowed: rules.Allowed{NestedSandbox: true}}), time.Unix(1000, 0))
		if got := accepted(c); got.Status != step.status || got.Reason != step.reason {
			t.Errorf("%+v: %+v", step.support, got)
		}
	}
}
