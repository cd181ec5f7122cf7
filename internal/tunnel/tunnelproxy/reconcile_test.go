package tunnelproxy

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/credentials"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/tunnelsync"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// loaded returns the default settings with some changes.
func loaded(t *testing.T, changes ...string) config.Tunnel {
	t.Helper()
	var cfg config.Tunnel
	env := map[string]string{"TUNNEL_IMAGE": "example.com/berg-tunnel:1"}
	for _, c := range changes {
		name, set, _ := strings.Cut(c, "=")
		env[name] = set
	}
	if _, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return env[name] }, nil); err != nil {
		t.Fatal(err)
	}
	return cfg
}

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

func TestWhatAPairWasMadeWithStays(t *testing.T) {
	made := loaded(t, "TUNNEL_BACKEND=LocalProcess", "TUNNEL_PUBLISH=NodePort", "TUNNEL_CONTROL_PORT=40001", "TUNNEL_DATA_PORT=40002")
	p := pairIn(tunnelv1.StateStarting)
	o := status.Observed{Proxy: p, Network: runningNetwork()}
	if got := pairSettings(made, o); got.Backend != made.Backend || got.Publish != made.Publish || got.ControlPort != 40001 {
		t.Errorf("of a new pair: %+v", got)
	}
	out := status.Outcome{Observed: o, State: tunnelv1.StateStarting, Image: "i", Backend: made.Backend, Publish: made.Publish}
	status.Compute(out, nil, noon)
	o.Client = manifests.ClientPod(manifests.Inputs{UID: p.UID, Name: p.Name, Config: made})
	got := pairSettings(loaded(t), o)
	if got.Backend != config.BackendLocalProcess || got.Publish != config.PublishNodePort || got.ControlPort != 40001 || got.DataPort != 40002 {
		t.Errorf("%s, %s, %d, %d", got.Backend, got.Publish, got.ControlPort, got.DataPort)
	}
	in := manifests.Inputs{Name: p.Name, UID: p.UID, Config: got, Nodes: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	plan := manifests.New(in)
	if port := plan.Policy.Spec.Ingress[1].Ports[0].Port.IntValue(); port != 40001 {
		t.Errorf("the policy opens port %d", port)
	}
	if port := plan.Services[1].Spec.Ports[1].TargetPort.IntValue(); port != 40002 {
		t.Errorf("the Service leads to port %d", port)
	}
}

func TestNodesThatEnqueuePairs(t *testing.T) {
	node := func(cidr, address string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{}
		n.Spec.PodCIDRs = []string{cidr}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: "n"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	before := node("10.1.2.0/24", "192.0.2.1", corev1.ConditionTrue)
	var got []string
	for _, a := range manifests.NodeAddresses(before) {
		got = append(got, a.String())
	}
	if want := []string{"10.1.2.0", "10.1.2.1", "192.0.2.1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for what, test := range map[string]struct {
		after    *corev1.Node
		enqueues bool
	}{
		"nothing":           {node("10.1.2.0/24", "192.0.2.1", corev1.ConditionTrue), false},
		"not ready":         {node("10.1.2.0/24", "192.0.2.1", corev1.ConditionFalse), true},
		"another address":   {node("10.1.2.0/24", "192.0.2.2", corev1.ConditionTrue), true},
		"another pod range": {node("10.1.3.0/24", "192.0.2.1", corev1.ConditionTrue), true},
	} {
		if nodeChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: test.after}) != test.enqueues {
			t.Errorf("%s: want %t", what, test.enqueues)
		}
	}
}

// noSecrets is an API server without Secrets.
type noSecrets struct{ client.Reader }

func (noSecrets) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

func TestAMissingPullSecretIsReported(t *testing.T) {
	r := &Reconciler{Namespace: "operator", Config: loaded(t, "TUNNEL_PULL_SECRET=login"), Access: reconcile.Access{Writer: apply.Writer{Live: noSecrets{}}}}
	if err := r.init(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		client *corev1.Pod
		state  tunnelv1.ContainerNetworkTunnelProxyState
	}{{nil, tunnelv1.StateBuildingImage}, {&corev1.Pod{}, tunnelv1.StateStarting}} {
		out := &status.Outcome{Observed: status.Observed{Proxy: pairIn(tunnelv1.StatePending), Network: runningNetwork(), Client: test.client}, Image: "i"}
		p := r.begin(t.Context(), out, credentials.Keys{}, noon)
		if p == nil || p.Condition != tunnelv1.ConditionImageReady || p.Reason != tunnelv1.ReasonImageRetried || p.Class == outcome.Stale || out.State != test.state || out.Again == 0 {
			t.Fatalf("%+v in %s, again in %s", p, out.State, out.Again)
		}
		if !strings.Contains(p.Message, "TUNNEL_PULL_SECRET") || !strings.Contains(p.Message, "operator/login") {
			t.Error(p.Message)
		}
		status.Compute(*out, p, noon)
		if c := meta.FindStatusCondition(out.Proxy.Status.Conditions, tunnelv1.ConditionImageReady); c.Status != metav1.ConditionFalse || c.Reason != tunnelv1.ReasonImageRetried {
			t.Errorf("%+v", c)
		}
	}
}

func TestTheKubeletOfTheHostIsDenied(t *testing.T) {
	cfg := loaded(t)
	if got := tunnelsync.DenyKubelet(cfg, nil); !slices.Equal(got.Servers.DeniedPorts, cfg.Servers.DeniedPorts) {
		t.Errorf("without a host: %v", got.Servers.DeniedPorts)
	}
	node := &corev1.Node{}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	if got := tunnelsync.DenyKubelet(cfg, node); !slices.Equal(got.Servers.DeniedPorts, cfg.Servers.DeniedPorts) {
		t.Errorf("the default port is denied twice: %v", got.Servers.DeniedPorts)
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 11250
	TrimNode(node)
	got := tunnelsync.DenyKubelet(cfg, node)
	if got.Servers.DeniedPorts[len(got.Servers.DeniedPorts)-1] != (allowlist.Ports{First: 11250, Last: 11250}) {
		t.Errorf("%v", got.Servers.DeniedPorts)
	}
	if len(cfg.Servers.DeniedPorts) == len(got.Servers.DeniedPorts) {
		t.Error("the settings that were passed in were changed")
	}
}
