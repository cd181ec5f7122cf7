package manifests

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

func TestEndpointVariable(t *testing.T) {
	for name, want := range map[string]string{
		"web":     "WEB_ENDPOINT",
		"web-2":   "WEB_2_ENDPOINT",
		"a.b_c d": "A_B_C_D_ENDPOINT",
		"straße":  "STRA_E_ENDPOINT",
		"":        "",
	} {
		if got := rules.EndpointVariable(name); got != want {
			t.Errorf("rules.EndpointVariable(%q) = %q, want %q", name, got, want)
		}
	}
}

// Every kind of port, named or not: what containers and players are told.
func TestEndpoints(t *testing.T) {
	in := testInputs(testConfig(t, map[string]string{
		"CHALLENGE_DOMAIN": "ctf.example", "CHALLENGE_HTTP_PORT": "8080", "CHALLENGE_TLS_PORT": "8443",
	}), Snapshot{Containers: []bergv1.Container{
		{Hostname: "web", Ports: []bergv1.Port{
			{Name: "web", Port: 80, AppProtocol: "http", Type: bergv1.PublicHTTPRoute},
			{Name: "chat", Port: 7000, Type: bergv1.PublicTLSRoute},
			{Port: 81, Type: bergv1.PublicHTTPRoute},
		}},
		{Hostname: "game", Ports: []bergv1.Port{
			{Name: "game", Port: 53, Type: bergv1.PublicPort},
			{Port: 53, Protocol: "UDP", Type: bergv1.PublicPort},
		}},
		{Hostname: "db", Ports: []bergv1.Port{
			{Name: "sql", Port: 5432},
			{Name: "gossip", Port: 5432, Protocol: "udp", Type: bergv1.InternalPort},
			{Port: 1},
		}},
	}})
	f, err := PlanFoundation(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := PortEndpoints(in, allotNodePorts(f.Services))
	if err != nil {
		t.Fatal(err)
	}
	host := func(container, port string) string { return in.hostname(container, port) + ".ctf.example" }
	web, chat, plain := host("web", "80"), host("web", "7000"), host("web", "81")
	want := []Endpoint{
		{"WEB_ENDPOINT", web + ":8080", &bergv1.ServiceEndpoint{Name: "web", Hostname: web, Port: 8080, Protocol: "TCP", AppProtocol: "http", TLS: true, URL: "https://" + web + ":8080"}},
		{"CHAT_ENDPOINT", chat + ":8443", &bergv1.ServiceEndpoint{Name: "chat", Hostname: chat, Port: 8443, Protocol: "TCP", TLS: true, URL: "tls://" + chat + ":8443"}},
		{"", plain + ":8080", &bergv1.ServiceEndpoint{Name: "web:81", Hostname: plain, Port: 8080, Protocol: "TCP", TLS: true, URL: "https://" + plain + ":8080"}},
		{"GAME_ENDPOINT", "ctf.example:30000", &bergv1.ServiceEndpoint{Name: "game", Hostname: "ctf.example", Port: 30000, Protocol: "TCP", URL: "tcp://ctf.example:30000"}},
		{"", "ctf.example:30001", &bergv1.ServiceEndpoint{Name: "game:53", Hostname: "ctf.example", Port: 30001, Protocol: "UDP", URL: "udp://ctf.example:30001"}},
		{"SQL_ENDPOINT", "db:5432", nil},
		{"GOSSIP_ENDPOINT", "db:5432", nil},
		{"", "db:1", nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if _, err := PortEndpoints(in, f.Services); err == nil || !strings.Contains(err.Error(), "game-node-port") {
		t.Errorf("a node port that is not allocated: error %v", err)
	}
	// Every container gets all of them.
	for _, d := range PlanWorkloads(in, got) {
		env := map[string]string{}
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			env[e.Name] = e.Value
		}
		for _, e := range want {
			if e.Variable != "" && env[e.Variable] != e.Address {
				t.Errorf("%s: %s=%q, want %q", d.Name, e.Variable, env[e.Variable], e.Address)
			}
		}
		if env["CHALLENGE_NAMESPACE"] != in.Namespace() || len(env) != 6 {
			t.Errorf("%s: environment %v", d.Name, env)
		}
	}
}

// What is told without ports is known, and nothing.
func TestEndpointsWithoutPorts(t *testing.T) {
	got, err := PortEndpoints(testInputs(testConfig(t, nil), Snapshot{Containers: []bergv1.Container{{Hostname: "web"}}}), nil)
	if err != nil || got == nil || len(got) > 0 {
		t.Errorf("endpoints %#v, error %v", got, err)
	}
}

func TestAddress(t *testing.T) {
	const route = "a087f5f0-dad6-819c-99ef-854fccce0261.ctf.example"
	for _, tc := range []struct {
		kind        bergv1.PortType
		host        string
		port        int32
		protocol    string
		appProtocol string
		tls         bool
		want        string
	}{
		{bergv1.PublicHTTPRoute, route, 443, "TCP", "", true, "https://" + route},
		{bergv1.PublicHTTPRoute, route, 80, "TCP", "", false, "http://" + route},
		{bergv1.PublicHTTPRoute, route, 80, "TCP", "", true, "https://" + route + ":80"},
		{bergv1.PublicHTTPRoute, route, 443, "TCP", "", false, "http://" + route + ":443"},
		{bergv1.PublicHTTPRoute, route, 8443, "TCP", "http", true, "https://" + route + ":8443"},
		{bergv1.PublicHTTPRoute, route, 8080, "TCP", "https", false, "http://" + route + ":8080"}, // the Gateway ends TLS, or there is none
		{bergv1.PublicHTTPRoute, route, 443, "TCP", "ssh", true, "https://" + route},
		{bergv1.PublicTLSRoute, route, 443, "TCP", "", true, "tls://" + route + ":443"},
		{bergv1.PublicTLSRoute, route, 8443, "TCP", "ssh", true, "tls://" + route + ":8443"},
		{bergv1.PublicTLSRoute, route, 443, "TCP", "https", true, "https://" + route},
		{bergv1.PublicTLSRoute, route, 8443, "TCP", "HTTP", true, "https://" + route + ":8443"},
		{bergv1.PublicPort, "ctf.example", 30000, "TCP", "", false, "tcp://ctf.example:30000"},
		{bergv1.PublicPort, "ctf.example", 30000, "TCP", "ssh", false, "tcp://ctf.example:30000"},
		{bergv1.PublicPort, "ctf.example", 30000, "TCP", "HTTP", false, "http://ctf.example:30000"},
		{bergv1.PublicPort, "ctf.example", 30000, "TCP", "https", false, "https://ctf.example:30000"},
		{bergv1.PublicPort, "ctf.example", 30443, "TCP", "https", false, "https://ctf.example:30443"},
		{bergv1.PublicPort, "ctf.example", 30000, "UDP", "http", false, "udp://ctf.example:30000"},
		{bergv1.PublicPort, "192.0.2.1", 30000, "TCP", "", false, "tcp://192.0.2.1:30000"},
		{bergv1.PublicPort, "2001:db8::1", 30000, "TCP", "", false, "tcp://[2001:db8::1]:30000"},
		{bergv1.PublicHTTPRoute, "2001:db8::80", 80, "TCP", "", false, "http://[2001:db8::80]"},
	} {
		e := bergv1.ServiceEndpoint{Hostname: tc.host, Port: tc.port, Protocol: tc.protocol, AppProtocol: tc.appProtocol, TLS: tc.tls}
		got := address(e, tc.kind)
		if got != tc.want {
			t.Errorf("%s %+v: %s, want %s", tc.kind, e, got, tc.want)
		}
		if u, err := url.Parse(got); err != nil || u.Hostname() != tc.host {
			t.Errorf("%s: host %q, error %v", got, u.Hostname(), err)
		}
	}
}

const (
	routeHostname    = "a087f5f0-dad6-819c-99ef-854fccce0261.ctf.example"
	nodePortHostname = "ctf.example"
)

func TestMovedNodePorts(t *testing.T) {
	endpoint := func(name, proto string, port int32, hostname string, tls bool) bergv1.ServiceEndpoint {
		return bergv1.ServiceEndpoint{Name: name, Protocol: proto, Hostname: hostname, Port: port, TLS: tls}
	}
	node := func(name, proto string, port int32) bergv1.ServiceEndpoint {
		return endpoint(name, proto, port, nodePortHostname, false)
	}
	recorded := []bergv1.ServiceEndpoint{
		node("stays", "TCP", 30000), node("both", "TCP", 30001), node("both", "UDP", 30002),
		node("goes", "TCP", 30003), endpoint("route", "TCP", 80, routeHostname, true), node("becomes", "TCP", 30004),
		endpoint("plain", "TCP", 80, routeHostname, false), endpoint("opened", "TCP", 80, routeHostname, false),
	}
	now := []bergv1.ServiceEndpoint{
		node("stays", "TCP", 30000), node("both", "TCP", 30001), node("both", "UDP", 30009),
		endpoint("route", "TCP", 8080, routeHostname, true), endpoint("becomes", "TCP", 443, routeHostname, false), node("new", "TCP", 30010),
		endpoint("plain", "TCP", 8080, routeHostname, false), node("opened", "TCP", 30011),
	}
	want := []string{"Port both is now reached at ctf.example:30009: node port 30002 was not available any more"}
	if diff := cmp.Diff(want, MovedNodePorts(recorded, now)); diff != "" {
		t.Error(diff)
	}
}

// Which of the addresses that were told still belong to ports of a Challenge.
func TestKeepWanted(t *testing.T) {
	node := bergv1.ServiceEndpoint{Name: "game", Protocol: "TCP", Hostname: nodePortHostname, Port: 30000}
	plain := bergv1.ServiceEndpoint{Name: "game", Protocol: "TCP", Hostname: routeHostname, Port: 80}
	unnamed := bergv1.ServiceEndpoint{Name: "box:53", Protocol: "UDP", Hostname: nodePortHostname, Port: 30001}
	recorded := []bergv1.ServiceEndpoint{node, plain, unnamed}
	for name, tc := range map[string]struct {
		ports []bergv1.Port
		want  []bergv1.ServiceEndpoint
	}{
		"none":             {nil, nil},
		"internal":         {[]bergv1.Port{{Name: "game", Port: 1}, {Port: 53, Protocol: "udp"}}, nil},
		"node port":        {[]bergv1.Port{{Name: "game", Port: 1, Type: bergv1.PublicPort}}, []bergv1.ServiceEndpoint{node}},
		"another number":   {[]bergv1.Port{{Name: "game", Port: 2, Type: bergv1.PublicPort}}, []bergv1.ServiceEndpoint{node}},
		"another name":     {[]bergv1.Port{{Name: "play", Port: 1, Type: bergv1.PublicPort}}, nil},
		"another protocol": {[]bergv1.Port{{Name: "game", Port: 1, Type: bergv1.PublicPort, Protocol: "udp"}}, nil},
		"route":            {[]bergv1.Port{{Name: "game", Port: 1, Type: bergv1.PublicHTTPRoute}}, []bergv1.ServiceEndpoint{plain}},
		"unnamed":          {[]bergv1.Port{{Port: 53, Type: bergv1.PublicPort, Protocol: "UDP"}}, []bergv1.ServiceEndpoint{unnamed}},
		"unnamed, TCP":     {[]bergv1.Port{{Port: 53, Type: bergv1.PublicPort}}, nil},
	} {
		got := KeepWanted(recorded, []bergv1.Container{{Hostname: "box", Ports: tc.ports}})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// A plain HTTP route is no node port that could be asked for again.
	in := testInputs(testConfig(t, nil), Snapshot{})
	in.Recorded = []bergv1.ServiceEndpoint{plain}
	if got := recordedNodePort(in, bergv1.Container{Hostname: "box"}, bergv1.Port{Name: "game", Port: 1, Type: bergv1.PublicPort}); got != 0 {
		t.Errorf("node port %d of a route", got)
	}
}

func TestWithoutNewRoutes(t *testing.T) {
	service := func(name, hostname string, port int32) *bergv1.ServiceEndpoint {
		return &bergv1.ServiceEndpoint{Name: name, Protocol: "TCP", Hostname: hostname, Port: port}
	}
	const former = "0189a087-dad6-819c-99ef-854fccce0261.old.example"
	now := []Endpoint{
		{Variable: "GAME_ENDPOINT", Service: service("game", nodePortHostname, 30000)},
		{Variable: "WEB_ENDPOINT", Service: service("web", routeHostname, 443)},
		{Variable: "NEW_ENDPOINT", Service: service("new", routeHostname, 443)},
		{Variable: "OPENED_ENDPOINT", Service: service("opened", routeHostname, 443)},
		{Variable: "DB_ENDPOINT"},
	}
	recorded := []bergv1.ServiceEndpoint{*service("game", nodePortHostname, 30009), *service("web", former, 80), *service("opened", nodePortHostname, 30001)}
	want := []bergv1.ServiceEndpoint{*service("game", nodePortHostname, 30000), *service("web", former, 80)}
	if diff := cmp.Diff(want, PublicServices(WithoutNewRoutes(now, recorded))); diff != "" {
		t.Error(diff)
	}
	if now[1].Service.Hostname != routeHostname || now[2].Service == nil {
		t.Error("the endpoints themselves were changed")
	}
}
