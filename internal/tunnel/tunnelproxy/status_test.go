package tunnelproxy

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
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
		computeStatus(servesWith(p, look.tunnels...), at)
		if p.Status.TunnelConfigurationVersion != look.version {
			t.Errorf("%s: version %d, want %d", look.what, p.Status.TunnelConfigurationVersion, look.version)
		}
		again := p.DeepCopy()
		computeStatus(servesWith(again, look.tunnels...), at.Add(time.Second))
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
	computeStatus(servesWith(p, Tunnel{Name: "a", ID: 1, Port: 1001}), noon)
	before := p.DeepCopy()
	out := servesWith(p)
	out.Current, out.Calling = false, true
	computeStatus(out, noon.Add(time.Minute))
	if !equality.Semantic.DeepEqual(before.Status, p.Status) {
		t.Errorf("the status changed:\n%+v\n%+v", before.Status, p.Status)
	}
	p.Generation++
	computeStatus(out, noon.Add(time.Minute))
	if c := meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionTunnelsReady); c.Reason != tunnelv1.ReasonTunnelsPreparing {
		t.Errorf("after a change: %+v", c)
	}
	if p.Status.ObservedGeneration != p.Generation-1 {
		t.Errorf("the status tells of tunnels of generation %d, and says %d", p.Generation-1, p.Status.ObservedGeneration)
	}
	out.Current = true
	computeStatus(out, noon.Add(2*time.Minute))
	if p.Status.ObservedGeneration != p.Generation {
		t.Errorf("the proxies have answered about generation %d, and the status says %d", p.Generation, p.Status.ObservedGeneration)
	}
}

func TestFailedTellsWhyAndClearsPlaces(t *testing.T) {
	p := pairIn(tunnelv1.StatePending, tunnelv1.TunnelConfiguration{Name: "a", ServerPort: 80})
	computeStatus(servesWith(p, Tunnel{Name: "a", ID: 1, Port: 1001}), noon)
	if p.Status.ClientProxyContainerID != "containerd://1" || *p.Status.ServerProxyProcessID != 7 || p.Status.ServerProxyControlPort != 40000 {
		t.Fatalf("running: %+v", p.Status)
	}
	out := servesWith(p)
	out.State, out.End, out.Step, out.Current = tunnelv1.StateFailed, "the client proxy has ended with exit code 1", tunnelv1.ConditionProxiesReady, false
	computeStatus(out, noon.Add(time.Minute))
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
		if got := checkEnd(test.o, 5*time.Minute, test.now); (got != "") != test.ended {
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
		p := checkPrerequisites(test.o)
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
	var err error
	for _, s := range cfg.Section().Settings {
		if s.Name == "" {
			t.Fatal("a setting without a name")
		}
	}
	cfg = loaded(t)
	cfg, err = DenyAPIServer(t.Context(), cfg, "https://127.0.0.1:16443", nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := DenyAPIServer(t.Context(), loaded(t), "https://10.96.0.1:443", nil)
	if err != nil {
		t.Fatal(err)
	}
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

func TestAChangeAfterTheEndIsObserved(t *testing.T) {
	p := pairIn(tunnelv1.StatePending, tunnelv1.TunnelConfiguration{Name: "b", ServerPort: 80}, tunnelv1.TunnelConfiguration{Name: "c", ServerPort: 81})
	out := servesWith(p)
	out.State, out.End, out.Step, out.Current = tunnelv1.StateFailed, "the client proxy has ended", tunnelv1.ConditionProxiesReady, false
	computeStatus(out, noon)
	before := p.DeepCopy()
	p.Generation++
	p.Spec.Tunnels = []tunnelv1.TunnelConfiguration{{Name: "c", ServerPort: 81}, {Name: "a", ServerPort: 82}}
	computeChangedAfterEnd(p, noon.Add(time.Minute))
	s := p.Status
	if s.ObservedGeneration != p.Generation || s.State != tunnelv1.StateFailed || s.Message != before.Status.Message {
		t.Errorf("%+v", s)
	}
	if len(s.TunnelStatuses) != 2 || s.TunnelStatuses[0].Name != "a" || s.TunnelStatuses[0].State != tunnelv1.TunnelFailed || s.TunnelStatuses[0].ErrorMessage == "" ||
		!equality.Semantic.DeepEqual(s.TunnelStatuses[1], before.Status.TunnelStatuses[1]) {
		t.Errorf("tunnels: %+v", s.TunnelStatuses)
	}
	for i, c := range s.Conditions {
		if old := before.Status.Conditions[i]; c.ObservedGeneration != p.Generation || c.Status != old.Status || c.Message != old.Message || !c.LastTransitionTime.Equal(&old.LastTransitionTime) {
			t.Errorf("%+v, before %+v", c, old)
		}
	}
	again := p.DeepCopy()
	computeChangedAfterEnd(again, noon.Add(time.Hour))
	if !equality.Semantic.DeepEqual(p.Status, again.Status) {
		t.Error("a second look changes the status")
	}
}

func TestWhatAPairWasMadeWithStays(t *testing.T) {
	made := loaded(t, "TUNNEL_BACKEND=LocalProcess", "TUNNEL_PUBLISH=NodePort", "TUNNEL_CONTROL_PORT=40001", "TUNNEL_DATA_PORT=40002")
	p := pairIn(tunnelv1.StateStarting)
	o := Observed{Proxy: p, Network: runningNetwork()}
	if got := settingsOf(made, o); got.Backend != made.Backend || got.Publish != made.Publish || got.ControlPort != 40001 {
		t.Errorf("of a new pair: %+v", got)
	}
	out := Outcome{Observed: o, State: tunnelv1.StateStarting, Image: "i", Backend: made.Backend, Publish: made.Publish}
	computeStatus(out, noon)
	o.Client = clientPod(Inputs{UID: p.UID, Name: p.Name, Config: made})
	got := settingsOf(loaded(t), o)
	if got.Backend != config.BackendLocalProcess || got.Publish != config.PublishNodePort || got.ControlPort != 40001 || got.DataPort != 40002 {
		t.Errorf("%s, %s, %d, %d", got.Backend, got.Publish, got.ControlPort, got.DataPort)
	}
	in := Inputs{Name: p.Name, UID: p.UID, Config: got, Nodes: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	if port := policy(in).Spec.Ingress[1].Ports[0].Port.IntValue(); port != 40001 {
		t.Errorf("the policy opens port %d", port)
	}
	if port := publisher(in).Spec.Ports[1].TargetPort.IntValue(); port != 40002 {
		t.Errorf("the Service leads to port %d", port)
	}
	if why := refused(0, tunnelv1.TunnelConfiguration{ServerPort: 80, ClientProxyPort: 40001}, got); why == "" {
		t.Error("a tunnel may have the pair's control port")
	}
	if why := refused(0, tunnelv1.TunnelConfiguration{ServerPort: 80, ClientProxyPort: 36672}, got); why != "" {
		t.Error(why)
	}
}

func TestLastWords(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 4, Reason: "Error", Message: "{\"msg\":\"long ago\"}\n{\"msg\":\"it is so\"}\n\nberg-tunnel: it could not begin: port 1 is taken\n",
	}}}}
	got := ended("the server proxy", pod)
	if !contains(got, "exit code 4") || !contains(got, "port 1 is taken") || contains(got, "long ago") {
		t.Errorf("%q", got)
	}
	for said, want := range map[string]string{"": "", "\n \n": "", "one\n": "one", "one\ntwo\nthree": "two | three", "\xff\n": "?"} {
		if got := lastWords(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
	if got := lastWords(strings.Repeat("x", 5000)); len(got) > maxLastWords {
		t.Errorf("%d bytes are told", len(got))
	}
}

func TestNodesThatWakePairs(t *testing.T) {
	node := func(cidr, address string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{}
		n.Spec.PodCIDRs = []string{cidr}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: "n"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	before := node("10.1.2.0/24", "192.0.2.1", corev1.ConditionTrue)
	var got []string
	for _, a := range nodeAddresses(before) {
		got = append(got, a.String())
	}
	if want := []string{"10.1.2.0", "10.1.2.1", "192.0.2.1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for what, test := range map[string]struct {
		after *corev1.Node
		wakes bool
	}{
		"nothing":           {node("10.1.2.0/24", "192.0.2.1", corev1.ConditionTrue), false},
		"not ready":         {node("10.1.2.0/24", "192.0.2.1", corev1.ConditionFalse), true},
		"another address":   {node("10.1.2.0/24", "192.0.2.2", corev1.ConditionTrue), true},
		"another pod range": {node("10.1.3.0/24", "192.0.2.1", corev1.ConditionTrue), true},
	} {
		if nodeChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: test.after}) != test.wakes {
			t.Errorf("%s: want %t", what, test.wakes)
		}
	}
}

// noSecrets is an API server without Secrets.
type noSecrets struct{ client.Reader }

func (noSecrets) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

func TestAMissingPullSecretIsTold(t *testing.T) {
	r := &Reconciler{Namespace: "operator", Config: loaded(t, "TUNNEL_REGISTRY_SECRET=login"), Writer: apply.Writer{Live: noSecrets{}}}
	for _, test := range []struct {
		client *corev1.Pod
		state  tunnelv1.ContainerNetworkTunnelProxyState
	}{{nil, tunnelv1.StateBuildingImage}, {&corev1.Pod{}, tunnelv1.StateStarting}} {
		out := &Outcome{Observed: Observed{Proxy: pairIn(tunnelv1.StatePending), Network: runningNetwork(), Client: test.client}, Image: "i"}
		r.begin(t.Context(), out, Keys{}, noon)
		p := out.Problem
		if p == nil || p.Condition != tunnelv1.ConditionImageReady || p.Reason != tunnelv1.ReasonImageRetried || p.Class == outcome.Stale || out.State != test.state || out.Again == 0 {
			t.Fatalf("%+v in %s, again in %s", p, out.State, out.Again)
		}
		if !contains(p.Message, "TUNNEL_REGISTRY_SECRET") || !contains(p.Message, "operator/login") {
			t.Error(p.Message)
		}
		computeStatus(*out, noon)
		if c := meta.FindStatusCondition(out.Proxy.Status.Conditions, tunnelv1.ConditionImageReady); c.Status != metav1.ConditionFalse || c.Reason != tunnelv1.ReasonImageRetried {
			t.Errorf("%+v", c)
		}
	}
}

func TestTheBackendOfAPair(t *testing.T) {
	pods, processes := &hostPod{}, &localProcess{}
	r := &Reconciler{
		Config:   loaded(t, "TUNNEL_BACKEND=HostPod"),
		backends: map[config.TunnelBackend]backend{config.BackendHostPod: pods, config.BackendLocalProcess: processes},
	}
	p := pairIn(tunnelv1.StateRunning)
	if r.backendOf(p) != pods {
		t.Error("a new pair has not the backend of the settings")
	}
	p.Status.ServerProxyBackend = string(config.BackendLocalProcess)
	if r.backendOf(p) != processes {
		t.Error("a pair that runs has another backend than the one that it was made with")
	}
}
