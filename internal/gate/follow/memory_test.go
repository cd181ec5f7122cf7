package follow

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// maxRoute is how many bytes a route at two listeners may take in addition to its object in the cache. It takes some 1,850.
const maxRoute = 2400

func TestARouteTakesLittleMemory(t *testing.T) {
	const n = 5000
	state := NewState(routing.NewTable(), "test/gate", []int32{80, 8080}, nil)
	state.SetNamespace("berg", labels.Set{})
	state.SetClass(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "test/gate"}})
	state.SetGateway(&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "gateway"}, Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "gate", Listeners: []gatewayv1.Listener{
			{Name: "one", Port: 80, Protocol: gatewayv1.HTTPProtocolType}, {Name: "other", Port: 8080, Protocol: gatewayv1.HTTPProtocolType},
		},
	}})
	var routes []*gatewayv1.HTTPRoute
	for i := range n {
		backend := gatewayv1.HTTPBackendRef{}
		backend.Name, backend.Port = "web", ptr.To(gatewayv1.PortNumber(80))
		name := fmt.Sprintf("route-%d", i)
		routes = append(routes, &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, UID: types.UID(name)}, Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{
				{Name: "gateway", SectionName: ptr.To(gatewayv1.SectionName("one"))}, {Name: "gateway", SectionName: ptr.To(gatewayv1.SectionName("other"))},
			}},
			Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(name + ".example")},
			Rules:     []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{backend}}},
		}})
	}
	before := heap()
	for _, route := range routes {
		state.SetHTTPRoute(route)
	}
	if each := (heap() - before) / n; each > maxRoute {
		t.Errorf("a route takes %d bytes, want at most %d", each, maxRoute)
	}
	if parents := state.RouteParents(routing.Key{Kind: routing.HTTPRoute, Namespace: "berg", Name: "route-1"}); len(parents) != 2 || len(parents[0].Attachments) != 1 {
		t.Errorf("the routes are not served: %+v", parents)
	}
	runtime.KeepAlive(routes)
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers kept
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
