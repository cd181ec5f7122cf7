package proxyroom

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func pairIn(state tunnelv1.ContainerNetworkTunnelProxyState, tunnels ...tunnelv1.TunnelConfiguration) *tunnelv1.ContainerNetworkTunnelProxy {
	p := &tunnelv1.ContainerNetworkTunnelProxy{}
	p.Name, p.UID, p.Generation = "laptop", "u-1", 3
	p.Spec.ContainerNetworkName, p.Spec.Tunnels = "net", tunnels
	p.Status.State = state
	return p
}

func runningNetwork() *tunnelv1.ContainerNetwork {
	n := &tunnelv1.ContainerNetwork{}
	n.Name, n.Status.State, n.Status.ID, n.Status.NetworkName = "net", tunnelv1.NetworkRunning, "ns-uid", "net"
	n.Status.Conditions = []metav1.Condition{{Type: tunnelv1.ConditionConfined, Status: metav1.ConditionTrue}}
	return n
}

func clientPodRunning() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID, pod.CreationTimestamp = "pod-1", metav1.Time{Time: noon}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: clientContainer, ContainerID: "containerd://1"}}
	return pod
}

func servesWith(p *tunnelv1.ContainerNetworkTunnelProxy, tunnels ...Tunnel) Outcome {
	return Outcome{
		Observed: Observed{
			Proxy: p, Network: runningNetwork(), Client: clientPodRunning(),
			Server: Server{Exists: true, Ready: &Line{Role: "server", PID: 7, ControlPort: 40000}, Address: "192.0.2.1", StartedAt: noon},
		},
		State: tunnelv1.StateRunning, Image: "image@sha256:1", Endpoint: Endpoint{"10.0.0.7", 36672, 36673},
		Tunnels: Synced{Tunnels: tunnels}, Current: true,
	}
}

func TestVersionRisesWithTheSetInEffect(t *testing.T) {
	p := pairIn(tunnelv1.StateRunning, tunnelv1.TunnelConfiguration{Name: "b", ServerPort: 80}, tunnelv1.TunnelConfiguration{Name: "a", ServerPort: 81})
	at := noon
	for _, look := range []struct {
		what    string
		tunnels []Tunnel
		version int32
	}{
		{"the first ones", []Tunnel{{Name: "b", ID: 1, Port: 1001}, {Name: "a", ID: 2, Port: 1002}}, 1},
		{"nothing", []Tunnel{{Name: "b", ID: 1, Port: 1001}, {Name: "a", ID: 2, Port: 1002}}, 1},
		{"another one failed", []Tunnel{{Name: "b", ID: 1, Port: 1001}, {Name: "a", ID: 2, Port: 1002}, {Name: "c", Err: "no"}}, 1},
		{"one prepared anew", []Tunnel{{Name: "b", ID: 3, Port: 1001}, {Name: "a", ID: 2, Port: 1002}}, 2},
		{"one gone", []Tunnel{{Name: "a", ID: 2, Port: 1002}}, 3},
		{"all gone", nil, 4},
	} {
		at = at.Add(time.Minute)
		before := p.DeepCopy()
		derive(servesWith(p, look.tunnels...), at)
		if p.Status.TunnelConfigurationVersion != look.version {
			t.Errorf("%s: version %d, want %d", look.what, p.Status.TunnelConfigurationVersion, look.version)
		}
		again := p.DeepCopy()
		derive(servesWith(again, look.tunnels...), at.Add(time.Second))
		if !equality.Semantic.DeepEqual(p.Status, again.Status) {
			t.Errorf("%s: a second look changes the status", look.what)
		}
		for i, tunnel := range p.Status.TunnelStatuses {
			if i > 0 && p.Status.TunnelStatuses[i-1].Name > tunnel.Name {
				t.Errorf("%s: tunnels are not sorted", look.what)
			}
			for _, old := range before.Status.TunnelStatuses {
				if old.Name == tunnel.Name && sameTunnel(old, tunnel) && !old.Timestamp.Equal(&tunnel.Timestamp) {
					t.Errorf("%s: the time of %s moved", look.what, tunnel.Name)
				}
			}
		}
	}
}

func TestWhileProxiesAreAskedNothingIsNews(t *testing.T) {
	p := pairIn(tunnelv1.StatePending, tunnelv1.TunnelConfiguration{Name: "a", ServerPort: 80})
	derive(servesWith(p, Tunnel{Name: "a", ID: 1, Port: 1001}), noon)
	before := p.DeepCopy()
	out := servesWith(p)
	out.Current, out.Calling = false, true
	derive(out, noon.Add(time.Minute))
	if !equality.Semantic.DeepEqual(before.Status, p.Status) {
		t.Errorf("the status changed:\n%+v\n%+v", before.Status, p.Status)
	}
	p.Generation++
	derive(out, noon.Add(time.Minute))
	if c := meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionTunnelsReady); c.Reason != tunnelv1.ReasonTunnelsPreparing {
		t.Errorf("after a change: %+v", c)
	}
	if p.Status.ObservedGeneration != p.Generation-1 {
		t.Errorf("the status tells of tunnels of generation %d, and says %d", p.Generation-1, p.Status.ObservedGeneration)
	}
	out.Current = true
	derive(out, noon.Add(2*time.Minute))
	if p.Status.ObservedGeneration != p.Generation {
		t.Errorf("the proxies have answered about generation %d, and the status says %d", p.Generation, p.Status.ObservedGeneration)
	}
}

func TestFailedTellsWhyAndClearsPlaces(t *testing.T) {
	p := pairIn(tunnelv1.StatePending, tunnelv1.TunnelConfiguration{Name: "a", ServerPort: 80})
	derive(servesWith(p, Tunnel{Name: "a", ID: 1, Port: 1001}), noon)
	if p.Status.ClientProxyContainerID != "containerd://1" || *p.Status.ServerProxyProcessID != 7 || p.Status.ServerProxyControlPort != 40000 {
		t.Fatalf("running: %+v", p.Status)
	}
	out := servesWith(p)
	out.State, out.End, out.Step, out.Current = tunnelv1.StateFailed, "the client proxy has ended with exit code 1", tunnelv1.ConditionProxiesReady, false
	derive(out, noon.Add(time.Minute))
	s := p.Status
	if s.ClientProxyContainerID != "" || s.ServerProxyProcessID != nil || s.ServerProxyStartupTimestamp != nil || s.ClientProxyControlPort != 0 {
		t.Errorf("places are left: %+v", s)
	}
	if len(s.TunnelStatuses) != 1 || s.TunnelStatuses[0].State != tunnelv1.TunnelFailed || s.TunnelStatuses[0].ErrorMessage == "" {
		t.Errorf("tunnels: %+v", s.TunnelStatuses)
	}
	if c := meta.FindStatusCondition(s.Conditions, tunnelv1.ConditionProxiesReady); c.Reason != tunnelv1.ReasonProxyEnded || c.Status != metav1.ConditionFalse {
		t.Errorf("condition: %+v", c)
	}
}

func TestJudgeEnd(t *testing.T) {
	exited := clientPodRunning()
	exited.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3}
	up := Server{Exists: true, Ready: &Line{}}
	for _, test := range []struct {
		what  string
		o     Observed
		now   time.Time
		ended bool
	}{
		{"nothing yet", Observed{Proxy: pairIn(tunnelv1.StatePending)}, noon, false},
		{"starting", Observed{Proxy: pairIn(tunnelv1.StateStarting), Client: clientPodRunning()}, noon, false},
		{"a start that takes too long", Observed{Proxy: pairIn(tunnelv1.StateStarting), Client: clientPodRunning()}, noon.Add(time.Hour), true},
		{"a pod that vanished at the start", Observed{Proxy: pairIn(tunnelv1.StateStarting)}, noon, false},
		{"running for long", Observed{Proxy: pairIn(tunnelv1.StateRunning), Client: clientPodRunning(), Server: up}, noon.Add(time.Hour), false},
		{"no client any more", Observed{Proxy: pairIn(tunnelv1.StateRunning), Server: up}, noon, true},
		{"no server any more", Observed{Proxy: pairIn(tunnelv1.StateRunning), Client: clientPodRunning()}, noon, true},
		{"the client has ended", Observed{Proxy: pairIn(tunnelv1.StateStarting), Client: exited}, noon, true},
		{"the server has ended", Observed{Proxy: pairIn(tunnelv1.StateStarting), Client: clientPodRunning(), Server: Server{Exists: true, Ended: "gone"}}, noon, true},
	} {
		if got := judgeEnd(test.o, 5*time.Minute, test.now); (got != "") != test.ended {
			t.Errorf("%s: %q", test.what, got)
		}
	}
}

func TestPrerequisites(t *testing.T) {
	leaving := runningNetwork()
	leaving.DeletionTimestamp = &metav1.Time{Time: noon}
	pending := runningNetwork()
	pending.Status.State = tunnelv1.NetworkPending
	for _, test := range []struct {
		o      Observed
		reason string
	}{
		{Observed{}, tunnelv1.ReasonNetworkNotFound},
		{Observed{Network: leaving}, tunnelv1.ReasonNetworkNotRunning},
		{Observed{Network: pending}, tunnelv1.ReasonNetworkNotRunning},
		{Observed{Network: runningNetwork(), HostName: "n1"}, tunnelv1.ReasonHostNotReady},
		{Observed{Network: runningNetwork(), HostName: "n1", Host: &corev1.Node{}}, tunnelv1.ReasonHostNotReady},
		{Observed{Network: runningNetwork()}, ""},
	} {
		test.o.Proxy = pairIn(tunnelv1.StatePending)
		p := judgePrerequisites(test.o)
		if p == nil && test.reason == "" {
			continue
		}
		if p == nil || p.Reason != test.reason || p.Class != outcome.Blocked {
			t.Errorf("%+v, want %s", p, test.reason)
		}
	}
}

func TestRefused(t *testing.T) {
	var cfg config.Tunnel
	for _, s := range cfg.Section().Settings {
		if s.Name == "" {
			t.Fatal("a setting without a name")
		}
	}
	cfg = loaded(t)
	cfg = DenyAPIServer(cfg, "https://127.0.0.1:16443")
	other := DenyAPIServer(loaded(t), "https://10.96.0.1:443")
	other.AllowedServers = append(other.AllowedServers, other.DeniedServers[0])
	for _, test := range []struct {
		cfg    config.Tunnel
		tunnel tunnelv1.TunnelConfiguration
		field  string
	}{
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080}, ""},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ServerAddress: "127.0.0.9"}, ""},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ServerAddress: "::1"}, ""},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ServerAddress: "192.0.2.1"}, "serverAddress"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 80, ServerAddress: "169.254.169.254"}, "serverAddress"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 10250}, "serverPort"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 16443}, "serverPort"},
		{other, tunnelv1.TunnelConfiguration{ServerPort: 443, ServerAddress: "10.96.0.1"}, "serverAddress"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ClientProxyPort: 36672}, "clientProxyPort"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ClientProxyPort: 36673}, "clientProxyPort"},
		{cfg, tunnelv1.TunnelConfiguration{ServerPort: 8080, ClientProxyAddress: "here"}, "clientProxyAddress"},
	} {
		why := refused(4, test.tunnel, test.cfg)
		if (why == "") != (test.field == "") || test.field != "" && !contains(why, "spec.tunnels[4]."+test.field) {
			t.Errorf("%+v: %q, want %s", test.tunnel, why, test.field)
		}
	}
}
