package network

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestPlanGolden(t *testing.T) {
	for _, mode := range []tunnelv1.ContainerNetworkMode{tunnelv1.ModeSession, tunnelv1.ModePersistent} {
		p := plan(Inputs{
			UID: "u-1", Name: "dev", Spec: tunnelv1.ContainerNetworkSpec{Mode: mode}, Made: true, Closed: []int32{36672, 36673},
			Operator: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "operator", Name: "manager"},
		})
		var got bytes.Buffer
		for _, o := range []any{p.Namespace, p.Binding, p.Policy} {
			text, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString("---\n")
			got.Write(text)
		}
		path := "testdata/" + string(mode) + ".golden.yaml"
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("the plan differs from %s: go test -update rewrites it\n%s", path, diff)
		}
	}
}

func networkIn(mode tunnelv1.ContainerNetworkMode, id string) *tunnelv1.ContainerNetwork {
	n := &tunnelv1.ContainerNetwork{}
	n.Name, n.UID = "dev", "u-1"
	n.Spec.NetworkName, n.Spec.Mode, n.Status.ID = "dev", mode, id
	return n
}

func namespaceOf(uid types.UID, terminating bool) *corev1.Namespace {
	ns := &corev1.Namespace{}
	ns.Name, ns.UID = "dev", uid
	if terminating {
		ns.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	}
	return ns
}

func TestCheckAndState(t *testing.T) {
	for what, test := range map[string]struct {
		n      *tunnelv1.ContainerNetwork
		o      Observed
		reason string
		state  tunnelv1.ContainerNetworkState
	}{
		"made for a session":           {networkIn(tunnelv1.ModeSession, ""), Observed{}, "", tunnelv1.NetworkRunning},
		"a session's own":              {networkIn(tunnelv1.ModeSession, "a"), Observed{Namespace: namespaceOf("a", false), Ours: true}, "", tunnelv1.NetworkRunning},
		"taken by another owner":       {networkIn(tunnelv1.ModeSession, ""), Observed{Namespace: namespaceOf("a", false)}, tunnelv1.ReasonNamespaceTaken, tunnelv1.NetworkFailedToStart},
		"persistent, of another owner": {networkIn(tunnelv1.ModePersistent, ""), Observed{Namespace: namespaceOf("a", false)}, "", tunnelv1.NetworkRunning},
		"existing and missing":         {networkIn(tunnelv1.ModeExisting, ""), Observed{}, tunnelv1.ReasonNamespaceNotFound, tunnelv1.NetworkNotFound},
		"cleanup and missing":          {networkIn(tunnelv1.ModeCleanup, ""), Observed{}, tunnelv1.ReasonNamespaceNotFound, tunnelv1.NetworkNotFound},
		"gone":                         {networkIn(tunnelv1.ModeSession, "a"), Observed{}, tunnelv1.ReasonNamespaceRemoved, tunnelv1.NetworkRemoved},
		"replaced":                     {networkIn(tunnelv1.ModeExisting, "a"), Observed{Namespace: namespaceOf("b", false)}, tunnelv1.ReasonNamespaceRemoved, tunnelv1.NetworkRemoved},
		"no policy":                    {networkIn(tunnelv1.ModeSession, ""), Observed{MissingPolicy: "missing"}, tunnelv1.ReasonAdmissionPolicyMissing, tunnelv1.NetworkFailedToStart},
		"no policy, existing":          {networkIn(tunnelv1.ModeExisting, ""), Observed{Namespace: namespaceOf("a", false), MissingPolicy: "missing"}, tunnelv1.ReasonAdmissionPolicyMissing, tunnelv1.NetworkFailedToStart},
		"no policy by now":             {networkIn(tunnelv1.ModeSession, "a"), Observed{Namespace: namespaceOf("a", false), Ours: true, MissingPolicy: "missing", Bound: true}, "", tunnelv1.NetworkRunning},
		"being deleted":                {networkIn(tunnelv1.ModeExisting, ""), Observed{Namespace: namespaceOf("b", true)}, tunnelv1.ReasonNamespaceTerminating, tunnelv1.NetworkPending},
	} {
		problems := check(test.n, &test.o)
		reason := ""
		if p := problems.First(); p != nil {
			reason = p.Reason
		} else if test.o.Namespace == nil {
			test.o.Namespace = namespaceOf("a", false)
		}
		ready := computeStatus(test.n, test.o, problems, time.Unix(2, 0))
		if reason != test.reason || test.n.Status.State != test.state {
			t.Errorf("%s: %q and %s, want %q and %s", what, reason, test.n.Status.State, test.reason, test.state)
		}
		if ready.Status == metav1.ConditionTrue != (test.reason == "") || test.reason != "" && ready.Reason != test.reason ||
			ready.Stalled != (test.reason != "" && test.reason != tunnelv1.ReasonNamespaceTerminating) {
			t.Errorf("%s: %+v", what, ready)
		}
		if c := meta.FindStatusCondition(test.n.Status.Conditions, tunnelv1.ConditionNamespaceReady); c.Status == metav1.ConditionTrue && test.o.Namespace == nil {
			t.Errorf("%s: NamespaceReady is %s without a namespace", what, c.Status)
		}
		if test.n.Status.Message == "" {
			t.Errorf("%s: the status says nothing", what)
		}
	}
}

func TestNamespaceNeedsAProof(t *testing.T) {
	var secrets ownership.Tokens
	n := networkIn(tunnelv1.ModeSession, "")
	digest := secrets.Draw()
	created := func(*corev1.Namespace) {}
	for name, tc := range map[string]struct {
		status tunnelv1.ContainerNetworkStatus
		modify func(*corev1.Namespace)
		ours   bool
	}{
		"before the network has a proof": {tunnelv1.ContainerNetworkStatus{}, created, false},
		"by its UID":                     {tunnelv1.ContainerNetworkStatus{ID: "created"}, created, true},
		"another UID":                    {tunnelv1.ContainerNetworkStatus{ID: "former"}, created, false},
		"without the secret":             {tunnelv1.ContainerNetworkStatus{NamespaceTokenHash: digest}, created, false},
		"with the digest": {tunnelv1.ContainerNetworkStatus{NamespaceTokenHash: digest}, func(ns *corev1.Namespace) {
			ns.Annotations["usvc-dev.developer.microsoft.com/namespace-token"] = digest
		}, false},
		"with the secret": {tunnelv1.ContainerNetworkStatus{NamespaceTokenHash: digest}, func(ns *corev1.Namespace) {
			ownership.Owner{Annotation: OwnershipLabels.Annotation(), Token: secrets.Token("", digest)}.SetTokenOn(ns)
		}, true},
	} {
		n, ns := n.DeepCopy(), namespaceOf("created", false)
		n.Status = tc.status
		ownerFor(n).SetOn(ns)
		tc.modify(ns)
		if got := namespaceOwner(n).Owns(ns); got != tc.ours {
			t.Errorf("%s: ours %t, want %t", name, got, tc.ours)
		}
	}

	n.Status.NamespaceTokenHash = digest
	problems := outcome.Problems{{Condition: tunnelv1.ConditionConfined, Reason: tunnelv1.ReasonWaiting, Class: outcome.InProgress, Message: "the rights are not known yet"}}
	computeStatus(n, Observed{Namespace: namespaceOf("new", false), Ours: true}, problems, time.Unix(2, 0))
	if n.Status.ID != "new" || n.Status.NamespaceTokenHash != "" || n.Status.State != tunnelv1.NetworkPending {
		t.Errorf("the namespace that was made is not in the status: %+v", n.Status)
	}
}

func TestPlanLeavesForeignNamespacesAlone(t *testing.T) {
	in := Inputs{UID: "u-1", Name: "dev.example", Closed: []int32{36672, 36673}, Operator: rbacv1.Subject{Kind: "ServiceAccount", Namespace: "operator", Name: "account"}}
	in.Spec.NetworkName, in.Spec.Mode = "dev", tunnelv1.ModeExisting
	if p := plan(in); p.Namespace != nil || p.Policy != nil || p.Binding == nil || p.Binding.RoleRef.Name != Role {
		t.Errorf("%+v", p)
	}
	in.Spec.NetworkName, in.Spec.Mode, in.Made = "", tunnelv1.ModeSession, true
	p := plan(in)
	if p.Namespace == nil || len(p.Namespace.OwnerReferences) != 1 || p.Policy == nil {
		t.Fatalf("%+v", p)
	}
	other := in
	other.UID = "u-2"
	if plan(other).Namespace.Name == p.Namespace.Name {
		t.Error("two networks of the same name have the same namespace")
	}
	in.Spec.Mode = tunnelv1.ModePersistent
	if p := plan(in); len(p.Namespace.OwnerReferences) != 0 || len(p.Policy.OwnerReferences) != 0 {
		t.Error("a persistent object has an owner, with which it is deleted")
	}
}

func TestPortsExcept(t *testing.T) {
	for _, closed := range [][]int32{{36672, 36673}, {36673, 36672}, {1, 65535}, {80, 443}, {80, 80, 79}, {443, 36672, 36673, 80, 443}} {
		for _, port := range []int32{1, 79, 80, 81, 443, 36671, 36672, 36673, 36674, 65535} {
			open := false
			for _, p := range PortsExcept(closed...) {
				if *p.Protocol == corev1.ProtocolTCP && p.Port.IntVal <= port && port <= *p.EndPort {
					open = true
				}
			}
			if want := !slices.Contains(closed, port); open != want {
				t.Errorf("without %v, %d is open: %t", closed, port, open)
			}
		}
	}
}

func TestControlPortsOfClientProxies(t *testing.T) {
	proxy := func(control, data int32) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "control", ContainerPort: control}, {Name: "data", ContainerPort: data}}}}}}
	}
	greedy := proxy(36672, 36673)
	for port := range int32(100) {
		greedy.Spec.Containers[0].Ports = append(greedy.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 8000 + port})
		greedy.Spec.Containers = append(greedy.Spec.Containers, proxy(9000+port, 9100+port).Spec.Containers[0])
	}
	got := controlPorts([]*corev1.Pod{proxy(36672, 36673), proxy(40002, 40001), greedy, {}})
	if want := []int32{36672, 36673, 40001, 40002}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
