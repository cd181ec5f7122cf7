package manifests

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestRoutes(t *testing.T) {
	in := testInputs(testConfig(t, map[string]string{
		"CHALLENGE_DOMAIN": "ctf.example", "GATEWAY_NAME": "edge", "GATEWAY_NAMESPACE": "infra",
		"CHALLENGE_HTTP_LISTENER_NAME": "web", "CHALLENGE_TLS_LISTENER_NAME": "raw",
	}), Snapshot{Containers: []bergv1.Container{
		{Hostname: "a", Ports: []bergv1.Port{{Port: 80, Type: bergv1.PublicHTTPRoute}, {Port: 81, Type: bergv1.PublicHTTPRoute}, {Port: 7000, Type: bergv1.PublicTLSRoute}}},
		{Hostname: "b", Ports: []bergv1.Port{{Port: 80, Type: bergv1.PublicHTTPRoute}, {Port: 82}, {Port: 83, Type: bergv1.PublicPort}}},
	}})
	f, err := PlanFoundation(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.HTTPRoutes) != 3 || len(f.TLSRoutes) != 1 {
		t.Fatalf("%d HTTPRoutes, %d TLSRoutes", len(f.HTTPRoutes), len(f.TLSRoutes))
	}
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	labels := map[string]string{}
	expectRoute := func(name, label string, hostnames []gatewayv1.Hostname, parents []gatewayv1.ParentReference, listener string, ref gatewayv1.BackendRef) {
		t.Helper()
		if !uuid.MatchString(label) || labels[label] != "" {
			t.Errorf("%s: host %q is no UUID, or that of %q", name, label, labels[label])
		}
		labels[label] = name
		if !cmp.Equal(hostnames, []gatewayv1.Hostname{gatewayv1.Hostname(label + ".ctf.example")}) {
			t.Errorf("%s: hosts %v", name, hostnames)
		}
		want := []gatewayv1.ParentReference{{
			Group: ptr.To(gatewayv1.Group("gateway.networking.k8s.io")), Kind: ptr.To(gatewayv1.Kind("Gateway")),
			Namespace: ptr.To(gatewayv1.Namespace("infra")), Name: "edge", SectionName: ptr.To(gatewayv1.SectionName(listener)),
		}}
		if diff := cmp.Diff(want, parents); diff != "" {
			t.Errorf("%s: parents %s", name, diff)
		}
		if got := fmt.Sprintf("%s-%d", ref.Name, *ref.Port); got != name {
			t.Errorf("%s leads to %s", name, got)
		}
	}
	for i, name := range []string{"a-80", "a-81", "b-80"} {
		r := f.HTTPRoutes[i]
		if r.Name != name {
			t.Errorf("route %s, want %s", r.Name, name)
		}
		expectRoute(r.Name, r.Labels[bergv1.LabelHostname], r.Spec.Hostnames, r.Spec.ParentRefs, "web", r.Spec.Rules[0].BackendRefs[0].BackendRef)
	}
	r := f.TLSRoutes[0]
	expectRoute(r.Name, r.Labels[bergv1.LabelHostname], r.Spec.Hostnames, r.Spec.ParentRefs, "raw", r.Spec.Rules[0].BackendRefs[0])
	if r.Name != "a-7000" {
		t.Errorf("route %s", r.Name)
	}
	in.Cause = bergv1.CauseCrashing
	named, err := PlanFoundation(in)
	if err != nil {
		t.Fatal(err)
	}
	cause, found := f.HTTPRoutes[0].Annotations[bergv1.AnnotationCause]
	if !found || cause != "" || len(named.TLSRoutes[0].Annotations) > 0 || named.HTTPRoutes[0].Annotations[bergv1.AnnotationCause] != "Crashing" {
		t.Errorf("the cause for players: %v, %v", f.HTTPRoutes[0].Annotations, named.HTTPRoutes[0].Annotations)
	}
}
