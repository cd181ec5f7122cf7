package challengeinstance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestEndpointVariable(t *testing.T) {
	for name, want := range map[string]string{
		"web":     "WEB_ENDPOINT",
		"web-2":   "WEB_2_ENDPOINT",
		"a.b_c d": "A_B_C_D_ENDPOINT",
		"straße":  "STRA_E_ENDPOINT",
		"":        "",
	} {
		if got := endpointVariable(name); got != want {
			t.Errorf("endpointVariable(%q) = %q, want %q", name, got, want)
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
	f, err := planFoundation(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := endpoints(in, allotNodePorts(f.Services))
	if err != nil {
		t.Fatal(err)
	}
	host := func(container, port string) string { return in.hostname(container, port) + ".ctf.example" }
	web, chat, plain := host("web", "80"), host("web", "7000"), host("web", "81")
	want := []Endpoint{
		{"WEB_ENDPOINT", web + ":8080", &bergv1.ServiceEndpoint{Name: "web", Hostname: web, Port: 8080, Protocol: "TCP", AppProtocol: "http", TLS: true}},
		{"CHAT_ENDPOINT", chat + ":8443", &bergv1.ServiceEndpoint{Name: "chat", Hostname: chat, Port: 8443, Protocol: "TCP", TLS: true}},
		{"", plain + ":8080", &bergv1.ServiceEndpoint{Name: "web:81", Hostname: plain, Port: 8080, Protocol: "TCP", TLS: true}},
		{"GAME_ENDPOINT", "ctf.example:30000", &bergv1.ServiceEndpoint{Name: "game", Hostname: "ctf.example", Port: 30000, Protocol: "TCP"}},
		{"", "ctf.example:30001", &bergv1.ServiceEndpoint{Name: "game:53", Hostname: "ctf.example", Port: 30001, Protocol: "UDP"}},
		{"SQL_ENDPOINT", "db:5432", nil},
		{"GOSSIP_ENDPOINT", "db:5432", nil},
		{"", "db:1", nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	if _, err := endpoints(in, f.Services); err == nil || !strings.Contains(err.Error(), "game-node-port") {
		t.Errorf("a node port that is not allotted: error %v", err)
	}
	// All of them reach every container, whatever it offers itself.
	for _, d := range planWorkloads(in, got) {
		env := map[string]string{}
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			env[e.Name] = e.Value
		}
		for _, e := range want {
			if e.Variable != "" && env[e.Variable] != e.Address {
				t.Errorf("%s: %s=%q, want %q", d.Name, e.Variable, env[e.Variable], e.Address)
			}
		}
		if env["CHALLENGE_NAMESPACE"] != in.namespace() || len(env) != 6 {
			t.Errorf("%s: environment %v", d.Name, env)
		}
	}
}

func TestMoved(t *testing.T) {
	endpoint := func(name, protocol string, port int32, tls bool) bergv1.ServiceEndpoint {
		return bergv1.ServiceEndpoint{Name: name, Protocol: protocol, Hostname: "ctf.example", Port: port, TLS: tls}
	}
	told := []bergv1.ServiceEndpoint{
		endpoint("stays", "TCP", 30000, false), endpoint("both", "TCP", 30001, false), endpoint("both", "UDP", 30002, false),
		endpoint("goes", "TCP", 30003, false), endpoint("route", "TCP", 80, true), endpoint("becomes", "TCP", 30004, false),
	}
	now := []bergv1.ServiceEndpoint{
		endpoint("stays", "TCP", 30000, false), endpoint("both", "TCP", 30001, false), endpoint("both", "UDP", 30009, false),
		endpoint("route", "TCP", 8080, true), endpoint("becomes", "TCP", 443, true), endpoint("new", "TCP", 30010, false),
	}
	want := []string{"Port both is reached at ctf.example:30009 now: node port 30002 could not be had again"}
	if diff := cmp.Diff(want, moved(told, now)); diff != "" {
		t.Error(diff)
	}
}
