package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// asked returns the node ports that a container's Service asks for.
func asked(t *testing.T, in Inputs, c bergv1.Container) []int32 {
	t.Helper()
	var out []int32
	for _, s := range services(in, c) {
		for _, p := range s.Spec.Ports {
			if s.Name == c.Hostname+nodePortSuffix {
				out = append(out, p.NodePort)
			} else if p.NodePort != 0 {
				t.Errorf("service %s asks for a node port", s.Name)
			}
		}
	}
	return out
}

func TestRecordedNodePortsAreRequestedAgain(t *testing.T) {
	c := bergv1.Container{Hostname: "game", Ports: []bergv1.Port{
		{Name: "tcp", Port: 53, Type: bergv1.PublicPort},
		{Port: 53, Protocol: "udp", Type: bergv1.PublicPort},
		{Name: "inside", Port: 80},
	}}
	recorded := func(name, proto string, port int32, tls bool) bergv1.ServiceEndpoint {
		return bergv1.ServiceEndpoint{Name: name, Protocol: proto, Port: port, TLS: tls}
	}
	for name, tc := range map[string]struct {
		recorded []bergv1.ServiceEndpoint
		want     []int32
	}{
		"nothing":                   {nil, []int32{0, 0}},
		"both":                      {[]bergv1.ServiceEndpoint{recorded("tcp", "TCP", 31000, false), recorded("game:53", "UDP", 31001, false)}, []int32{31000, 31001}},
		"one":                       {[]bergv1.ServiceEndpoint{recorded("game:53", "UDP", 31001, false)}, []int32{0, 31001}},
		"another protocol":          {[]bergv1.ServiceEndpoint{recorded("tcp", "UDP", 31000, false)}, []int32{0, 0}},
		"a route before a rollout":  {[]bergv1.ServiceEndpoint{recorded("tcp", "TCP", 443, true)}, []int32{0, 0}},
		"public before, internal":   {[]bergv1.ServiceEndpoint{recorded("inside", "TCP", 31002, false)}, []int32{0, 0}},
		"another container's entry": {[]bergv1.ServiceEndpoint{recorded("web:53", "UDP", 31001, false)}, []int32{0, 0}},
	} {
		in := testInputs(testConfig(t, nil), Snapshot{Containers: []bergv1.Container{c}})
		in.Recorded = tc.recorded
		if diff := cmp.Diff(tc.want, asked(t, in, c)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestServices(t *testing.T) {
	c := bergv1.Container{Hostname: "dns", Ports: []bergv1.Port{
		{Port: 53, Type: bergv1.PublicPort},
		{Port: 53, Protocol: "UDP", Type: bergv1.PublicPort},
		{Port: 80, Type: bergv1.PublicHTTPRoute},
		{Port: 9000, Protocol: "udp"},
	}}
	type summary struct {
		Type  corev1.ServiceType
		IP    string
		Ports map[string]corev1.Protocol
	}
	summarize := func(env map[string]string, c bergv1.Container) map[string]summary {
		in := testInputs(testConfig(t, env), Snapshot{Containers: []bergv1.Container{c}})
		out := map[string]summary{}
		for _, s := range services(in, c) {
			ports := map[string]corev1.Protocol{}
			for _, p := range s.Spec.Ports {
				ports[p.Name] = p.Protocol
				if p.TargetPort.IntVal != p.Port {
					t.Errorf("%s: port %d leads to %s", s.Name, p.Port, p.TargetPort.String())
				}
			}
			if both := ptr.Deref(s.Spec.IPFamilyPolicy, "") == corev1.IPFamilyPolicyPreferDualStack; both != (s.Spec.Type == corev1.ServiceTypeNodePort) {
				t.Errorf("%s has addresses of both protocols: %t", s.Name, both)
			}
			if s.Spec.Selector[bergv1.LabelContainer] != c.Hostname {
				t.Errorf("%s selects %v", s.Name, s.Spec.Selector)
			}
			out[s.Name] = summary{s.Spec.Type, s.Spec.ClusterIP, ports}
		}
		return out
	}
	all := map[string]corev1.Protocol{"port-53": "TCP", "port-53-udp": "UDP", "port-80": "TCP", "port-9000": "UDP"}
	public := map[string]corev1.Protocol{"port-53": "TCP", "port-53-udp": "UDP"}
	want := map[string]summary{"dns": {"ClusterIP", "", all}, "dns-node-port": {"NodePort", "", public}}
	if diff := cmp.Diff(want, summarize(nil, c)); diff != "" {
		t.Error(diff)
	}
	headless := map[string]string{"CHALLENGE_ADDITIONAL_HEADLESS_SERVICE": "true"}
	want["dns-headless"] = summary{"ClusterIP", "None", all}
	if diff := cmp.Diff(want, summarize(headless, c)); diff != "" {
		t.Error(diff)
	}
	name := map[string]summary{"bot": {"ClusterIP", "None", map[string]corev1.Protocol{}}}
	if diff := cmp.Diff(name, summarize(nil, bergv1.Container{Hostname: "bot"})); diff != "" {
		t.Errorf("a container without ports has no name: %s", diff)
	}
	name["bot-headless"] = name["bot"]
	if diff := cmp.Diff(name, summarize(headless, bergv1.Container{Hostname: "bot"})); diff != "" {
		t.Error(diff)
	}
}

func TestServicesNameProtocolsOfRoutes(t *testing.T) {
	for _, test := range []struct {
		kind      bergv1.PortType
		own, want string
	}{
		{bergv1.PublicHTTPRoute, "grpc", "kubernetes.io/h2c"},
		{bergv1.PublicHTTPRoute, "H2C", "kubernetes.io/h2c"},
		{bergv1.PublicTLSRoute, proxyProtocol, proxyProtocol},
		{bergv1.PublicHTTPRoute, "https", ""},
		{bergv1.PublicTLSRoute, "not a name!", ""},
		{bergv1.PublicPort, "grpc", ""},
		{bergv1.InternalPort, "grpc", ""},
	} {
		c := bergv1.Container{Hostname: "web", Ports: []bergv1.Port{{Port: 80, Type: test.kind, AppProtocol: test.own}}}
		in := testInputs(testConfig(t, nil), Snapshot{Containers: []bergv1.Container{c}})
		if got := ptr.Deref(services(in, c)[0].Spec.Ports[0].AppProtocol, ""); got != test.want {
			t.Errorf("%s, %s: %q, want %q", test.kind, test.own, got, test.want)
		}
	}
}
