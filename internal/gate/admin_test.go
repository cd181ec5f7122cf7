package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/internal/gate/follow"
	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

// replica is the admin port of a gate with one listener, without a cluster.
type replica struct {
	state     *follow.State
	endpoints *upstream.Endpoints
	url       string
}

func newReplica(t *testing.T) *replica {
	t.Helper()
	table, endpoints := routing.NewTable(), upstream.NewEndpoints()
	r := &replica{state: follow.NewState(table, "test/gate", []int32{80}, nil), endpoints: endpoints}
	server := httptest.NewServer(adminHandler(table, upstream.NewDialer(endpoints), r.state.Usage, nil))
	t.Cleanup(server.Close)
	r.url = server.URL
	r.state.SetClass(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "test/gate"}})
	r.state.SetGateway(&gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "gateway", Generation: 1},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "gate", Listeners: []gatewayv1.Listener{{
			Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}},
		}}},
	})
	return r
}

// route makes a route and its Service in a namespace.
func (r *replica) route(namespace string, created int64, hosts ...gatewayv1.Hostname) {
	r.state.SetNamespace(namespace, labels.Set{})
	r.state.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	backend := gatewayv1.HTTPBackendRef{}
	backend.Name, backend.Port = "web", ptr.To(gatewayv1.PortNumber(1))
	r.state.SetHTTPRoute(&gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Generation: 1, UID: types.UID(namespace), CreationTimestamp: metav1.Unix(created, 0)},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Namespace: ptr.To(gatewayv1.Namespace("berg")), Name: "gateway"}}},
			Hostnames:       hosts, Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{backend}}},
		},
	})
}

func (r *replica) pod(t *testing.T, namespace, address string) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	r.endpoints.Set(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To(int32(port))}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{host}}},
	})
}

func (r *replica) ask(t *testing.T, query string) (got gateadmin.Served) {
	t.Helper()
	answer, err := http.Get(r.url + "/served?" + query) //nolint:noctx // the test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAReplicaSaysWhatItServes(t *testing.T) {
	r := newReplica(t)
	pod, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pod.Close() }()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	r.route("all", 1, "*.example")
	r.route("first", 2, "first.example", "both.example")
	r.route("second", 3, "second.example", "both.example")
	r.route("silent", 4, "silent.example")
	r.route("podless", 5, "podless.example")
	for namespace, address := range map[string]string{"all": pod.Addr().String(), "first": pod.Addr().String(), "second": pod.Addr().String(), "silent": closed.Addr().String()} {
		r.pod(t, namespace, address)
	}
	for query, want := range map[string]gateadmin.Served{
		"host=first.example":                                   {Host: true, Pod: true},
		"host=FIRST.example.:443&namespace=first":              {Host: true, Pod: true},
		"host=first.example&namespace=second":                  {},
		"host=new.example&namespace=new":                       {}, // a wildcard of others has it
		"host=new.example":                                     {Host: true, Pod: true},
		"host=both.example&namespace=first":                    {Host: true, Pod: true},
		"host=both.example&namespace=second":                   {}, // the older route gets the requests
		"host=silent.example&namespace=silent":                 {Host: true},
		"host=silent.example&namespace=silent&connect=false":   {Host: true, Pod: true},
		"host=podless.example&namespace=podless&connect=false": {Host: true},
		"host=never.other":                                     {},
		"":                                                     {},
	} {
		if got := r.ask(t, query); got != want {
			t.Errorf("%s: %+v", query, got)
		}
	}
}

// The answer comes with the event, not after an interval.
func TestAReplicaAnswersWhenItServes(t *testing.T) {
	r := newReplica(t)
	pod, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pod.Close() }()
	if began := time.Now(); r.ask(t, "host=late.example&wait=true") != (gateadmin.Served{}) || time.Since(began) < maxWait {
		t.Errorf("an answer after %s", time.Since(began))
	}
	got := make(chan gateadmin.Served)
	go func() { got <- r.ask(t, "host=late.example&namespace=late&wait=true") }()
	r.route("late", 1, "late.example")
	r.pod(t, "late", pod.Addr().String())
	if answer := <-got; answer != (gateadmin.Served{Host: true, Pod: true}) {
		t.Errorf("%+v", answer)
	}
}

// A replica that has read the routes, and no certificate yet, would refuse players.
func TestAReplicaIsReadyWithItsCertificates(t *testing.T) {
	r := newReplica(t)
	if !r.state.CertificatesKnown() {
		t.Error("no Gateway names a certificate, and one is waited for")
	}
	r.state.SetGateway(&gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "secure", Generation: 1},
		Spec: gatewayv1.GatewaySpec{GatewayClassName: "gate", Listeners: []gatewayv1.Listener{{
			Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
			TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "certificate"}}},
		}}},
	})
	if r.state.CertificatesKnown() {
		t.Error("it is ready without the certificate")
	}
	r.state.SetCertificate(types.NamespacedName{Namespace: "berg", Name: "certificate"}, nil, errors.New("it is no certificate"))
	if !r.state.CertificatesKnown() {
		t.Error("a certificate that was read is waited for")
	}
}

func TestTheUsageIsReported(t *testing.T) {
	r := newReplica(t)
	r.route("first", 1, "first.example")
	future, err := http.Get(fmt.Sprintf("%s/usage?after=%d", r.url, time.Now().Add(time.Hour).Unix())) //nolint:noctx // the test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = future.Body.Close() }()
	if text, err := io.ReadAll(future.Body); err != nil || !strings.Contains(string(text), `"hosts":[]`) {
		t.Errorf("%q, %v", text, err)
	}
	answer, err := http.Get(r.url + "/usage?after=0") //nolint:noctx // the test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var report struct {
		Since time.Time
		Hosts []any
	}
	if err := json.NewDecoder(answer.Body).Decode(&report); err != nil || report.Since.IsZero() || len(report.Hosts) != 1 {
		t.Errorf("%v, %+v", err, report)
	}
}
