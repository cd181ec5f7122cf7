package frontend

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// tenant is a namespace whose user may create Gateways, routes and Services in it.
const tenant = "a-tenant"

// stranger returns metadata of an object that the tenant creates later than all others.
func stranger(name string, at time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: tenant, Name: name, Generation: 1, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at)}
}

// takeOver makes a Gateway of the tenant's with a certificate of its own, and routes for hosts of players.
func (g *gate) takeOver(t *testing.T, at time.Time, listeners []gatewayv1.Listener, hosts ...gatewayv1.Hostname) {
	t.Helper()
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the tenant") }))
	t.Cleanup(pod.Close)
	g.state.SetNamespace(tenant, labels.Set{})
	g.state.SetService(&corev1.Service{ObjectMeta: stranger("takes", at), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}})
	address := pod.Listener.Addr().(*net.TCPAddr)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: stranger("takes", at), Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(address.Port))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address.IP.String()}, TargetRef: &corev1.ObjectReference{UID: "takes"}}},
	}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "takes"}
	g.endpoints.Set(slice)
	g.state.SetCertificate(types.NamespacedName{Namespace: tenant, Name: "certificate"}, newCertificate(t, g.roots, "*.example"), nil)
	g.state.SetGateway(&gatewayv1.Gateway{ObjectMeta: stranger("gateway", at), Spec: gatewayv1.GatewaySpec{GatewayClassName: "gate", Listeners: listeners}})
	parent := gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gateway"}}}
	g.state.SetHTTPRoute(&gatewayv1.HTTPRoute{ObjectMeta: stranger("takes", at), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: parent, Hostnames: hosts, Rules: []gatewayv1.HTTPRouteRule{{
			// A longer path goes before the route of the instance, also before an older one.
			Matches:     []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchExact), Value: ptr.To("/login")}}},
			BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: backends("takes")[0]}},
		}},
	}})
	g.state.SetTLSRoute(&gatewayv1.TLSRoute{ObjectMeta: stranger("takes", at), Spec: gatewayv1.TLSRouteSpec{
		CommonRouteSpec: parent, Hostnames: hosts, Rules: []gatewayv1.TLSRouteRule{{BackendRefs: backends("takes")}},
	}})
}

// newListeners returns listeners at the ports of the Gateway of the tests.
func newListeners(host *gatewayv1.Hostname) []gatewayv1.Listener {
	ends := &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "certificate"}}}
	return []gatewayv1.Listener{
		{Name: "http", Port: plainPort, Protocol: gatewayv1.HTTPProtocolType, Hostname: host},
		{Name: "https", Port: securePort, Protocol: gatewayv1.HTTPSProtocolType, Hostname: host, TLS: ends},
		{Name: "raw", Port: rawPort, Protocol: gatewayv1.TLSProtocolType, Hostname: host, TLS: ends},
	}
}

// All Gateways of the class share the addresses of the gate. One of another namespace gets none of the host names, certificates and ports of
// an older one, nor of one in the preferred namespace, whose certificate may be missing.
func TestAGatewayOfOthersTakesNoPlayers(t *testing.T) {
	for name, listeners := range map[string][]gatewayv1.Listener{
		"every host":   newListeners(nil),
		"the one host": newListeners(ptr.To(gatewayv1.Hostname("web.example"))),
		"a wildcard":   newListeners(ptr.To(gatewayv1.Hostname("*.example"))),
		"the protocols exchanged": {
			{Name: "http", Port: securePort, Protocol: gatewayv1.HTTPProtocolType},
			{Name: "raw", Port: rawPort, Protocol: gatewayv1.HTTPProtocolType},
		},
	} {
		for when, at := range map[string]time.Time{"younger": time.Now(), "older": {}} {
			t.Run(name+", "+when, func(t *testing.T) {
				g := newGate(t, Options{Drain: time.Second})
				if when == "older" {
					g.state.Preferred = "berg"
					at = at.Add(-time.Hour) // newGate's has no time
				}
				pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the instance") }))
				t.Cleanup(pod.Close)
				g.serve(t, "web", pod.Listener.Addr().String())
				g.routeHTTP("web", "http", "web.example")
				g.routeHTTP("web", "https", "web.example")
				g.routeTLS("web", "web.example")
				g.takeOver(t, at, listeners, "web.example")
				secure := []string{"https://web.example/login", "https://web.example:4443/login"}
				clients := []*http.Client{g.client(securePort, false), g.client(rawPort, false)}
				for url, client := range map[string]*http.Client{
					"http://web.example/login": g.client(plainPort, false), secure[0]: clients[0], secure[1]: clients[1],
				} {
					if status, body, _ := get(t, client, url); status != http.StatusOK || body != "the instance" {
						t.Errorf("%s: %d %q", url, status, body)
					}
				}
				g.state.SetCertificate(types.NamespacedName{Namespace: "berg", Name: "certificate"}, nil, errors.New("there is none"))
				for i, url := range secure {
					clients[i].CloseIdleConnections()
					if answer, err := clients[i].Get(url); err == nil {
						t.Errorf("%s without a certificate of its own: %s", url, answer.Status)
						_ = answer.Body.Close()
					}
				}
			})
		}
	}
}

// Hosts that no older Gateway serves are free: several teams may share the gate.
func TestGatewaysOfSeveralNamespacesShareTheGate(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	old := time.Now().Add(-time.Hour)
	g.state.SetGateway(&gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "gateway", Generation: 2, CreationTimestamp: metav1.NewTime(old)},
		Spec:       gatewayv1.GatewaySpec{GatewayClassName: "gate", Listeners: newListeners(ptr.To(gatewayv1.Hostname("*.berg.example")))},
	})
	g.takeOver(t, old.Add(time.Minute), newListeners(ptr.To(gatewayv1.Hostname("*.team.example"))), "web.team.example")
	if status, body, _ := get(t, g.client(plainPort, false), "http://web.team.example/login"); status != http.StatusOK || body != "the tenant" {
		t.Errorf("%d %q", status, body)
	}
}

// Of two TLSRoutes with one host the older one is served, whichever has the first name.
func TestTheOlderTLSRouteIsServed(t *testing.T) {
	g := newGate(t, Options{Drain: time.Second})
	created := time.Now()
	for n, name := range []string{"z-older", "a-younger"} {
		pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		t.Cleanup(pod.Close)
		g.serve(t, name, pod.Listener.Addr().String())
		g.state.SetTLSRoute(&gatewayv1.TLSRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, Generation: 1, CreationTimestamp: metav1.NewTime(created.Add(time.Duration(n) * time.Minute))},
			Spec: gatewayv1.TLSRouteSpec{
				CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "gateway"}}},
				Hostnames:       []gatewayv1.Hostname{"web.example"}, Rules: []gatewayv1.TLSRouteRule{{BackendRefs: backends(name)}},
			},
		})
	}
	conn, err := tls.Dial("tcp", g.addresses[rawPort], &tls.Config{RootCAs: g.roots, ServerName: "web.example", MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || string(answer[len(answer)-len("z-older"):]) != "z-older" {
		t.Errorf("%q, %v", answer, err)
	}
}
