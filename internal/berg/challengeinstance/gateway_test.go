package challengeinstance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/config"
)

// busyGateway is a Gateway with much that says nothing about whether it works.
func busyGateway() *gatewayv1.Gateway {
	g := &gatewayv1.Gateway{TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway"}}
	g.Namespace, g.Name, g.ResourceVersion = "berg", "gate", "7"
	g.Annotations = map[string]string{"large": strings.Repeat("x", 1<<16)}
	g.Spec.GatewayClassName = "class"
	g.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 443, Protocol: gatewayv1.HTTPSProtocolType}}
	g.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "True", Message: "yes", LastTransitionTime: metav1.Now()}, {Type: "Other", Status: "True"}}
	g.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", AttachedRoutes: 9, Conditions: []metav1.Condition{{Type: "Programmed", Status: "False", Message: strings.Repeat("y", 1<<12)}}}}
	return g
}

// gateSlice is the EndpointSlice of a gate whose replicas are ready.
func gateSlice(addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	s.Namespace, s.Name, s.ResourceVersion = "operators", "berg-gate-admin-1", "7"
	s.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("admin"), Port: ptr.To[int32](9090)}}
	for _, address := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	return s
}

func TestTheReplicasOfTheGate(t *testing.T) {
	usual := gateSlice("10.0.0.8", "10.0.0.7")
	for name, tc := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		want   []string
	}{
		"two":             {func(*discoveryv1.EndpointSlice) {}, []string{"10.0.0.7:9090", "10.0.0.8:9090"}},
		"one that ends":   {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = ptr.To(false) }, []string{"10.0.0.7:9090"}},
		"other ports":     {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = ptr.To("https") }, nil},
		"no port":         {func(s *discoveryv1.EndpointSlice) { s.Ports = nil }, nil},
		"a host's own":    {func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "169.254.169.254" }, []string{"10.0.0.7:9090"}},
		"another version": {func(s *discoveryv1.EndpointSlice) { s.ResourceVersion = "8" }, []string{"10.0.0.7:9090", "10.0.0.8:9090"}},
	} {
		changed := usual.DeepCopy()
		tc.change(changed)
		got := readyReplicas(changed)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v", name, got)
		}
		if enqueued := replicasChanged.Update(event.UpdateEvent{ObjectOld: usual, ObjectNew: changed}); enqueued == slices.Equal(got, readyReplicas(usual)) {
			t.Errorf("%s: instances are enqueued: %t", name, enqueued)
		}
	}
}

// The API server is asked for one Gateway and for the classes, by the right names, and little of them is kept.
func TestTheGatewayOfTheSettingsIsRead(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path+" "+r.URL.Query().Get("fieldSelector")] = true
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		var list runtime.Object = &gatewayv1.GatewayList{
			TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "GatewayList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []gatewayv1.Gateway{*busyGateway()},
		}
		if strings.HasSuffix(r.URL.Path, "gatewayclasses") {
			list = &gatewayv1.GatewayClassList{
				TypeMeta: metav1.TypeMeta{APIVersion: gatewayv1.GroupVersion.String(), Kind: "GatewayClassList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"},
				Items: []gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "example.com/c"}}},
			}
		}
		if strings.HasSuffix(r.URL.Path, "endpointslices") {
			list = &discoveryv1.EndpointSliceList{
				TypeMeta: metav1.TypeMeta{APIVersion: discoveryv1.SchemeGroupVersion.String(), Kind: "EndpointSliceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"},
				Items: []discoveryv1.EndpointSlice{*gateSlice("10.0.0.7", "10.0.0.8")},
			}
			mu.Lock()
			asked[r.URL.Path+" "+r.URL.Query().Get("labelSelector")] = true
			mu.Unlock()
		}
		switch query := r.URL.Query(); {
		case query.Has("sendInitialEvents"): // as an API server that does not stream lists
			w.WriteHeader(http.StatusUnprocessableEntity)
			list = &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
		case query.Has("watch"):
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(api.Close)
	scheme := runtime.NewScheme()
	if err := gatewayv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: api.URL}, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := newGateways(mgr, config.Gateway{Namespace: "berg", Name: "gate"}, "operators")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	go func() { _ = all.Start(ctx) }()
	if !all.WaitForCacheSync(ctx) {
		t.Fatal("the cache does not start")
	}
	gateway, class := &gatewayv1.Gateway{}, &gatewayv1.GatewayClass{}
	for key, o := range map[types.NamespacedName]client.Object{{Namespace: "berg", Name: "gate"}: gateway, {Name: "class"}: class} {
		if err := all.Get(ctx, key, o); err != nil {
			t.Fatal(err)
		}
	}
	r := &Reconciler{gateways: all, Namespace: "operators", Clock: clock.RealClock{}}
	if gate, err := r.observeGate(ctx); err != nil || !slices.Equal(gate.Replicas, []string{"10.0.0.7:9090", "10.0.0.8:9090"}) || !gate.AbsentSince.IsZero() {
		t.Errorf("%+v, %v", gate, err)
	}
	if class.Spec.ControllerName != "example.com/c" {
		t.Errorf("%+v", class)
	}
	if text, _ := json.Marshal(gateway); len(text) > 2000 || gateway.Spec.Listeners[0].Port != 443 || gateway.Status.Listeners[0].AttachedRoutes != 0 {
		t.Errorf("%d bytes are kept: %.300s", len(text), text)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{
		"/apis/gateway.networking.k8s.io/v1/namespaces/berg/gateways metadata.name=gate", "/apis/gateway.networking.k8s.io/v1/gatewayclasses ",
		"/apis/discovery.k8s.io/v1/namespaces/operators/endpointslices app.kubernetes.io/name=berg-gate",
	} {
		if !asked[path] {
			t.Errorf("%q was not asked for: %v", path, asked)
		}
	}
}

func TestWhatEnqueuesInstancesOfAGateway(t *testing.T) {
	trimmed := func(change func(*gatewayv1.Gateway)) client.Object {
		g := busyGateway()
		change(g)
		o, err := trimGateway(g)
		if err != nil {
			t.Fatal(err)
		}
		return o.(client.Object)
	}
	before := trimmed(func(*gatewayv1.Gateway) {})
	for name, tc := range map[string]struct {
		change func(*gatewayv1.Gateway)
		want   bool
	}{
		"a route more": {func(g *gatewayv1.Gateway) { g.Status.Listeners[0].AttachedRoutes++; g.ResourceVersion = "8" }, false},
		"the time of a condition": {func(g *gatewayv1.Gateway) {
			g.Status.Conditions[0].LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
		}, false},
		"not accepted":  {func(g *gatewayv1.Gateway) { g.Status.Conditions[0].Status = "False" }, true},
		"a listener":    {func(g *gatewayv1.Gateway) { g.Status.Listeners[0].Conditions[0].Status = "True" }, true},
		"another class": {func(g *gatewayv1.Gateway) { g.Spec.GatewayClassName = "other" }, true},
	} {
		if got := gatewayChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: trimmed(tc.change)}); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWhatIsKeptOfAnEndpointSlice(t *testing.T) {
	no := false
	for name, tc := range map[string]struct {
		endpoints []discoveryv1.Endpoint
		want      bool
	}{
		"none": {nil, false}, "ready": {[]discoveryv1.Endpoint{{}}, true}, "not ready": {[]discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: &no}}}, false},
	} {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, Endpoints: tc.endpoints}
		status.TrimEndpoints(s)
		if leadsToPod(s) != tc.want || s.Labels[discoveryv1.LabelServiceName] != "web" {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
