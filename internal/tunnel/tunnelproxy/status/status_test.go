package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
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
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: manifests.ClientContainer, ContainerID: "containerd://1"}}
	return pod
}

func servesWith(p *tunnelv1.ContainerNetworkTunnelProxy, tunnels ...Tunnel) Outcome {
	return Outcome{
		Observed: Observed{
			Proxy: p, Network: runningNetwork(), Client: clientPodRunning(),
			Server: Server{Exists: true, Ready: &Line{Role: "server", PID: 7, ControlPort: 40000}, Address: "192.0.2.1", StartedAt: noon},
		},
		State: tunnelv1.StateRunning, Image: "image@sha256:1", Endpoint: manifests.Endpoint{Address: "10.0.0.7", Control: 36672, Data: 36673},
		Tunnels: Synced{Tunnels: tunnels}, Current: true,
	}
}

func TestServersThatDoNotAnswerAreNamed(t *testing.T) {
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for title, tc := range map[string]struct {
		servers map[string]string
		status  metav1.ConditionStatus
		says    string
	}{
		"nothing is known":       {nil, "", ""},
		"one is not checked yet": {map[string]string{"web": ""}, "", ""},
		"all answer":             {map[string]string{"web": "", "db": "", "gone": "refused"}, metav1.ConditionTrue, "all tunnels"},
		"one does not":           {map[string]string{"db": "connection refused"}, metav1.ConditionFalse, "db: connection refused"},
	} {
		p := &tunnelv1.ContainerNetworkTunnelProxy{Spec: tunnelv1.ContainerNetworkTunnelProxySpec{
			Tunnels: []tunnelv1.TunnelConfiguration{{Name: "web", ServerPort: 80}, {Name: "db", ServerPort: 81}},
		}}
		running := []Tunnel{{Name: "web", ID: 1, Port: 8080, WantedPort: 8080}, {Name: "db", ID: 2, Port: 40123, WantedPort: 5432}}
		out := Outcome{Observed: Observed{Proxy: p}, State: tunnelv1.StateRunning, Current: true, Tunnels: Synced{Tunnels: running}, Servers: tc.servers}
		got := Compute(out, nil, now)
		if got.Status != metav1.ConditionTrue {
			t.Errorf("%s: Ready is %s", title, got.Status)
		}
		c := meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionServerReachable)
		if (c == nil) != (tc.status == "") || c != nil && (c.Status != tc.status || !strings.Contains(c.Message, tc.says)) {
			t.Errorf("%s: %+v", title, c)
		}
		for _, tunnel := range p.Status.TunnelStatuses {
			if other := strings.Contains(tunnel.Message, "Port 5432 is in use"); other != (tunnel.Name == "db") {
				t.Errorf("%s: %s: %q", title, tunnel.Name, tunnel.Message)
			}
		}
		// Nothing is known after a restart of the operator: the condition stays.
		out.Servers = nil
		Compute(out, nil, now.Add(time.Hour))
		if again := meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionServerReachable); c != nil && again.Status != c.Status {
			t.Errorf("%s, afterwards: %+v", title, again)
		}
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
		{"one prepared again", []Tunnel{{Name: "b", ID: 3, Port: 1001}, {Name: "a", ID: 2, Port: 1002}}, 2},
		{"one gone", []Tunnel{{Name: "a", ID: 2, Port: 1002}}, 3},
		{"all gone", nil, 4},
	} {
		at = at.Add(time.Minute)
		before := p.DeepCopy()
		Compute(servesWith(p, look.tunnels...), nil, at)
		if p.Status.TunnelConfigurationVersion != look.version {
			t.Errorf("%s: version %d, want %d", look.what, p.Status.TunnelConfigurationVersion, look.version)
		}
		again := p.DeepCopy()
		Compute(servesWith(again, look.tunnels...), nil, at.Add(time.Second))
		if !equality.Semantic.DeepEqual(p.Status, again.Status) {
			t.Errorf("%s: a second reconciliation changes the status", look.what)
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

func TestNothingChangesWhileProxiesAreAsked(t *testing.T) {
	p := pairIn(tunnelv1.StatePending, tunnelv1.TunnelConfiguration{Name: "a", ServerPort: 80})
	Compute(servesWith(p, Tunnel{Name: "a", ID: 1, Port: 1001}), nil, noon)
	before := p.DeepCopy()
	out := servesWith(p)
	out.Current = false
	Compute(out, nil, noon.Add(time.Minute))
	if !equality.Semantic.DeepEqual(before.Status, p.Status) {
		t.Errorf("the status changed:\n%+v\n%+v", before.Status, p.Status)
	}
	p.Generation++
	Compute(out, nil, noon.Add(time.Minute))
	if c := meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionTunnelsReady); c.Reason != tunnelv1.ReasonTunnelsPreparing {
		t.Errorf("after a change: %+v", c)
	}
	if p.Status.ObservedGeneration != p.Generation-1 {
		t.Errorf("the status describes tunnels of generation %d, and says %d", p.Generation-1, p.Status.ObservedGeneration)
	}
	out.Current = true
	Compute(out, nil, noon.Add(2*time.Minute))
	if p.Status.ObservedGeneration != p.Generation {
		t.Errorf("the proxies have answered about generation %d, and the status says %d", p.Generation, p.Status.ObservedGeneration)
	}
}

func TestFailedSaysWhyAndClearsPlaces(t *testing.T) {
	p := pairIn(tunnelv1.StatePending, tunnelv1.TunnelConfiguration{Name: "a", ServerPort: 80})
	Compute(servesWith(p, Tunnel{Name: "a", ID: 1, Port: 1001}), nil, noon)
	if p.Status.ClientProxyContainerID != "containerd://1" || *p.Status.ServerProxyProcessID != 7 || p.Status.ServerProxyControlPort != 40000 {
		t.Fatalf("running: %+v", p.Status)
	}
	out := servesWith(p)
	out.State, out.End, out.Step, out.Current = tunnelv1.StateFailed, "the client proxy has ended with exit code 1", tunnelv1.ConditionProxiesReady, false
	Compute(out, nil, noon.Add(time.Minute))
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

func TestCheckEnd(t *testing.T) {
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
		{"a pod that disappeared at the start", Observed{Proxy: pairIn(tunnelv1.StateStarting)}, noon, false},
		{"running for long", Observed{Proxy: pairIn(tunnelv1.StateRunning), Client: clientPodRunning(), Server: up}, noon.Add(time.Hour), false},
		{"no client any more", Observed{Proxy: pairIn(tunnelv1.StateRunning), Server: up}, noon, true},
		{"no server any more", Observed{Proxy: pairIn(tunnelv1.StateRunning), Client: clientPodRunning()}, noon, true},
		{"the client has ended", Observed{Proxy: pairIn(tunnelv1.StateStarting), Client: exited}, noon, true},
		{"the server has ended", Observed{Proxy: pairIn(tunnelv1.StateStarting), Client: clientPodRunning(), Server: Server{Exists: true, Ended: "gone"}}, noon, true},
	} {
		if got := CheckEnd(test.o, 5*time.Minute, test.now); (got != "") != test.ended {
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
		p := CheckPrerequisites(test.o)
		if p == nil && test.reason == "" {
			continue
		}
		if p == nil || p.Reason != test.reason || p.Class != outcome.Blocked {
			t.Errorf("%+v, want %s", p, test.reason)
		}
	}
}

func TestAChangeAfterTheEndIsObserved(t *testing.T) {
	p := pairIn(tunnelv1.StatePending, tunnelv1.TunnelConfiguration{Name: "b", ServerPort: 80}, tunnelv1.TunnelConfiguration{Name: "c", ServerPort: 81})
	out := servesWith(p)
	out.State, out.End, out.Step, out.Current = tunnelv1.StateFailed, "the client proxy has ended", tunnelv1.ConditionProxiesReady, false
	Compute(out, nil, noon)
	before := p.DeepCopy()
	p.Generation++
	p.Spec.Tunnels = []tunnelv1.TunnelConfiguration{{Name: "c", ServerPort: 81}, {Name: "a", ServerPort: 82}}
	Compute(Outcome{Observed: Observed{Proxy: p}}, nil, noon.Add(time.Minute))
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
	Compute(Outcome{Observed: Observed{Proxy: again}}, nil, noon.Add(time.Hour))
	if !equality.Semantic.DeepEqual(p.Status, again.Status) {
		t.Error("a second reconciliation changes the status")
	}
}

func TestLastLines(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 4, Reason: "Error", Message: "{\"msg\":\"long ago\"}\n{\"msg\":\"it is so\"}\n\nberg-tunnel: it could not begin: port 1 is taken\n",
	}}}}
	got := Ended(theServer, pod)
	if !strings.Contains(got, "exit code 4") || !strings.Contains(got, "port 1 is taken") || strings.Contains(got, "long ago") {
		t.Errorf("%q", got)
	}
	for said, want := range map[string]string{"": "", "\n \n": "", "one\n": "one", "one\ntwo\nthree": "two | three", "\xff\n": "?"} {
		if got := lastLines(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
	if got := lastLines(strings.Repeat("x", 5000)); len(got) > maxLineBytes {
		t.Errorf("%d bytes are quoted", len(got))
	}
}

func TestReady(t *testing.T) {
	blocked := &outcome.Problem{Condition: tunnelv1.ConditionNetworkReady, Reason: tunnelv1.ReasonNetworkNotFound, Class: outcome.Blocked, Message: "no network"}
	starting := &outcome.Problem{Condition: tunnelv1.ConditionProxiesReady, Reason: tunnelv1.ReasonProxiesStarting, Class: outcome.InProgress, Message: "starting"}
	in := func(state tunnelv1.ContainerNetworkTunnelProxyState) Outcome {
		return Outcome{Observed: Observed{Proxy: pairIn("")}, State: state}
	}
	ended := in(tunnelv1.StateFailed)
	ended.End, ended.Step = "exit code 1", tunnelv1.ConditionProxiesReady
	bad := Tunnel{Name: "b", Err: "port taken"}
	retried, quiet, asked := servesWith(pairIn(""), bad), servesWith(pairIn("")), servesWith(pairIn(""))
	retried.Retrying = true
	quiet.Tunnels, quiet.Current = Synced{Err: "timeout"}, false
	asked.Current = false
	for name, test := range map[string]struct {
		out     Outcome
		problem *outcome.Problem
		status  metav1.ConditionStatus
		reason  string
		stalled bool
	}{
		"no network":                {in(tunnelv1.StatePending), blocked, metav1.ConditionFalse, tunnelv1.ReasonNetworkNotFound, true},
		"starting":                  {in(tunnelv1.StateStarting), starting, metav1.ConditionFalse, tunnelv1.ReasonProxiesStarting, false},
		"asked for the first time":  {asked, nil, metav1.ConditionUnknown, tunnelv1.ReasonTunnelsPreparing, false},
		"all tunnels":               {servesWith(pairIn(""), Tunnel{Name: "a", ID: 1, Port: 1}), nil, metav1.ConditionTrue, tunnelv1.ReasonTunnelsReady, false},
		"no tunnels":                {servesWith(pairIn("")), nil, metav1.ConditionTrue, tunnelv1.ReasonTunnelsReady, false},
		"a tunnel that is retried":  {retried, nil, metav1.ConditionFalse, tunnelv1.ReasonTunnelFailed, false},
		"a tunnel that is given up": {servesWith(pairIn(""), bad), nil, metav1.ConditionFalse, tunnelv1.ReasonTunnelFailed, true},
		"a proxy that is silent":    {quiet, nil, metav1.ConditionUnknown, tunnelv1.ReasonControlFailed, false},
		"failed":                    {ended, nil, metav1.ConditionFalse, tunnelv1.ReasonFailed, true},
		"failed, reconciled again":  {Outcome{Observed: Observed{Proxy: pairIn(tunnelv1.StateFailed)}}, nil, metav1.ConditionFalse, tunnelv1.ReasonFailed, true},
		"a running pair's Service":  {servesWith(pairIn(tunnelv1.StateRunning)), &outcome.Problem{Condition: tunnelv1.ConditionProxiesReady, Reason: "Refused", Class: outcome.External}, metav1.ConditionFalse, "Refused", true},
	} {
		got := Compute(test.out, test.problem, noon)
		if got.Status != test.status || got.Reason != test.reason || got.Stalled != test.stalled {
			t.Errorf("%s: %+v, want %s, %s, stalled %t", name, got, test.status, test.reason, test.stalled)
		}
	}

	// A tunnel that is given up stays Stalled while the proxies are asked again.
	p := pairIn("")
	given := Compute(servesWith(p, bad), nil, noon)
	given.SetOn(&p.Status.Conditions, p.Generation, noon)
	asked.Proxy = p
	if got := Compute(asked, nil, noon); !got.Stalled || got.Reason != tunnelv1.ReasonTunnelFailed {
		t.Errorf("asked again: %+v", got)
	}
	ComputeTerminating(p, "Waiting for the proxies to end", noon)
	if c := meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionReady); c.Reason != tunnelv1.ReasonTerminating || meta.FindStatusCondition(p.Status.Conditions, tunnelv1.ConditionStalled) != nil {
		t.Errorf("being deleted: %+v", p.Status.Conditions)
	}
}
