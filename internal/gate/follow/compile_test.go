package follow

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// A tenant may change its Gateway and its ReferenceGrants as often as it likes. Only its own routes are translated again.
func TestTenantsCostTheRoutesOfOthersNothing(t *testing.T) {
	state := NewState(routing.NewTable(), "test/gate", []int32{80}, nil)
	state.SetClass(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "test/gate"}})
	gateway := func(namespace string, generation int64, hostname gatewayv1.Hostname, from gatewayv1.FromNamespaces) {
		state.SetGateway(&gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "g", UID: types.UID(namespace), Generation: generation},
			Spec: gatewayv1.GatewaySpec{GatewayClassName: "gate", Listeners: []gatewayv1.Listener{{
				Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: &hostname,
				AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &from}},
			}}},
		})
	}
	grant := func(generation int64, from string) {
		state.SetGrant(&gatewayv1.ReferenceGrant{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "grant", Generation: generation},
			Spec:       gatewayv1.ReferenceGrantSpec{From: []gatewayv1.ReferenceGrantFrom{{Group: gatewayv1.GroupName, Kind: "HTTPRoute", Namespace: gatewayv1.Namespace(from)}}},
		})
	}
	gateway("berg", 1, "*.berg.example", gatewayv1.NamespacesFromAll)
	gateway("tenant", 1, "*.tenant.example", gatewayv1.NamespacesFromAll)
	for parent, namespace := range map[string]string{"berg": "challenge-a", "tenant": "tenant"} {
		state.SetNamespace(namespace, labels.Set{})
		state.SetHTTPRoute(&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Namespace: ptr.To(gatewayv1.Namespace(parent)), Name: "g"}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname("web." + parent + ".example")},
		}})
	}
	key := func(namespace string) routing.Key {
		return routing.Key{Kind: routing.HTTPRoute, Namespace: namespace, Name: "web"}
	}
	for name, test := range map[string]struct {
		change func()
		want   []string // namespaces whose routes are translated
	}{
		"its Gateway changes":              {func() { gateway("tenant", 2, "*.other.example", gatewayv1.NamespacesFromAll) }, []string{"tenant"}},
		"its Gateway wants hosts of ours":  {func() { gateway("tenant", 3, "*.berg.example", gatewayv1.NamespacesFromAll) }, []string{"tenant"}},
		"its Gateway comes and goes":       {func() { state.DeleteGateway(types.NamespacedName{Namespace: "tenant", Name: "g"}) }, []string{"tenant"}},
		"it grants something to itself":    {func() { grant(1, "tenant") }, []string{"tenant"}},
		"it grants something to the event": {func() { grant(2, "challenge-a") }, []string{"tenant", "challenge-a"}},
		"ours changes":                     {func() { gateway("berg", 2, "*.berg.example", gatewayv1.NamespacesFromSame) }, []string{"challenge-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			gateway("berg", 9, "*.berg.example", gatewayv1.NamespacesFromAll)
			gateway("tenant", 9, "*.tenant.example", gatewayv1.NamespacesFromAll)
			state.DeleteGrant(types.NamespacedName{Namespace: "tenant", Name: "grant"})
			grant(9, "tenant")
			before := map[string]*routing.Route{}
			for _, namespace := range []string{"challenge-a", "tenant"} {
				before[namespace] = state.routes[key(namespace)]
			}
			test.change()
			for namespace, route := range before {
				translated, wanted := state.routes[key(namespace)] != route, false
				for _, one := range test.want {
					wanted = wanted || one == namespace
				}
				if translated != wanted {
					t.Errorf("%s: %v", namespace, translated)
				}
			}
			// Routes refer to the listeners that are served.
			for _, namespace := range []string{"challenge-a", "tenant"} {
				for _, parent := range state.routes[key(namespace)].Parents {
					for _, attachment := range parent.Attachments {
						if served := state.compiled[attachment.Listener.Gateway].Listeners[0]; served != attachment.Listener {
							t.Error(fmt.Sprint("the route of ", namespace, " has a listener that is no longer served"))
						}
					}
				}
			}
		})
	}
}

// Each Secret that is read costs a watch. The Gateway of the instances has its own, however many others name.
func TestTenantsHaveFewSecretsRead(t *testing.T) {
	state := NewState(routing.NewTable(), "test/gate", []int32{443}, nil)
	state.Preferred = "berg"
	var read []types.NamespacedName
	state.Certificates = func(names []types.NamespacedName) { read = names }
	state.SetClass(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "test/gate"}})
	gateway := func(namespace, name string, listeners, refs int) {
		g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "gate"}}
		for l := range listeners {
			listener := gatewayv1.Listener{
				Name: gatewayv1.SectionName(fmt.Sprint("l", l)), Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
				Hostname: ptr.To(gatewayv1.Hostname(fmt.Sprintf("l%d.%s.%s.example", l, name, namespace))), TLS: &gatewayv1.ListenerTLSConfig{},
			}
			for r := range refs {
				listener.TLS.CertificateRefs = append(listener.TLS.CertificateRefs, gatewayv1.SecretObjectReference{Name: gatewayv1.ObjectName(fmt.Sprintf("%s-%d-%d", name, l, r))})
			}
			g.Spec.Listeners = append(g.Spec.Listeners, listener)
		}
		state.SetGateway(g)
	}
	gateway("tenant", "one", 64, 64)
	if len(read) != maxGatewayCertificates {
		t.Errorf("%d Secrets of one Gateway are read", len(read))
	}
	for n := range 20 {
		gateway("tenant", fmt.Sprint("a", n), 64, 64)
	}
	gateway("berg", "ours", 1, 1)
	if len(read) != maxCertificates || !slices.Contains(read, types.NamespacedName{Namespace: "berg", Name: "ours-0-0"}) {
		t.Errorf("%d Secrets are read, first %v", len(read), read[0])
	}
}
