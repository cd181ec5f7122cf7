package routing

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestHostsThatAreTaken(t *testing.T) {
	at := Port{0, 443}
	for _, test := range []struct {
		older, younger string
		want           bool
	}{
		{"*.a.example", "web.a.example", true},
		{"web.a.example", "*.a.example", true},
		{"*.a.example", "*.example", true},
		{"*.example", "deep.web.a.example", true},
		{Any, "web.a.example", true},
		{"web.a.example", Any, true},
		{Any, Any, true},
		{"web.a.example", "web.a.example", true},
		{"*.a.example", "a.example", false},
		{"a.example", "*.a.example", false},
		{"*.a.example", "*.b.example", false},
		{"web.a.example", "app.a.example", false},
	} {
		taken := Taken{}
		taken.add(&Listener{Gateway: types.NamespacedName{Namespace: "berg"}, Port: at, Hostname: test.older, Mode: HTTPS})
		spec := &gatewayv1.Listener{Port: 443, Protocol: gatewayv1.HTTPSProtocolType}
		if test.younger != Any {
			spec.Hostname = ptr.To(gatewayv1.Hostname(test.younger))
		}
		if got := taken.conflict("team", spec, 0) == gatewayv1.ListenerReasonHostnameConflict; got != test.want {
			t.Errorf("%q after %q: %v", test.younger, test.older, got)
		}
		if _, shared := intersect(test.older, test.younger); shared != test.want {
			t.Errorf("%q and %q intersect: %v", test.older, test.younger, shared)
		}
		if got := taken.conflict("berg", spec, 0) + taken.conflict("team", spec, 1); got != "" {
			t.Errorf("%q after %q in one namespace, or at another address: %s", test.younger, test.older, got)
		}
	}
}

// A tenant may create as many listeners as it likes.
func BenchmarkTaken(b *testing.B) {
	taken := Taken{}
	for n := range 100_000 {
		taken.add(&Listener{Gateway: types.NamespacedName{Namespace: fmt.Sprint("team-", n%100)}, Port: Port{0, 443}, Hostname: fmt.Sprintf("web-%d.example", n), Mode: HTTPS})
	}
	spec := &gatewayv1.Listener{Port: 443, Protocol: gatewayv1.HTTPSProtocolType, Hostname: ptr.To(gatewayv1.Hostname("new.example"))}
	for b.Loop() {
		taken.conflict("team-new", spec, 0)
	}
}
