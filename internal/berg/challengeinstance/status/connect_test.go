package status

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

func TestConnectionsGoToNodePortsAtTheNodesOfPods(t *testing.T) {
	port := func(number int32) manifests.Endpoint {
		return manifests.Endpoint{Service: &bergv1.ServiceEndpoint{Hostname: "attacker.example", Port: number}}
	}
	on := func(container, ip string, ready bool) corev1.Pod {
		p := pod(container, ready)
		p.Status.HostIP = ip
		return p
	}
	for name, tc := range map[string]struct {
		modify func(*Outcome)
		want   string
	}{
		"each public TCP port":     {func(*Outcome) {}, "[10.0.0.5:30001 10.0.0.5:30003 [fd00::6]:30004]"},
		"not ready":                {func(o *Outcome) { o.Pods[1] = on("db", "10.0.0.5", false) }, "[]"},
		"Running before":           {func(o *Outcome) { wasReady(o.Instance) }, "[]"},
		"a problem":                {func(o *Outcome) { o.Problem = BeingBuilt }, "[]"},
		"of an earlier version":    {func(o *Outcome) { o.Pinned.Defaults.StartupProbes = false }, "[]"},
		"the node's own loopback":  {func(o *Outcome) { o.Pods[0].Status.HostIP = "127.0.0.1" }, "[[fd00::6]:30004]"},
		"a cloud's metadata":       {func(o *Outcome) { o.Pods[0].Status.HostIP = "169.254.169.254" }, "[[fd00::6]:30004]"},
		"a name":                   {func(o *Outcome) { o.Pods[0].Status.HostIP = "attacker.example" }, "[[fd00::6]:30004]"},
		"no node yet":              {func(o *Outcome) { o.Pods[0].Status.HostIP = "" }, "[[fd00::6]:30004]"},
		"addresses are not known":  {func(o *Outcome) { o.Endpoints = nil }, "[]"},
		"turned off by the author": {func(o *Outcome) { o.Pinned.Containers[0].Ports[0].ConnectAtStart = ptr.To(false) }, "[10.0.0.5:30003 [fd00::6]:30004]"},
	} {
		out := startingWith(nil, on("web", "10.0.0.5", true), on("db", "fd00::6", true))
		out.Pinned.Defaults = &manifests.Defaults{StartupProbes: true}
		out.Pinned.Containers = []bergv1.Container{
			{Hostname: "web", Ports: []bergv1.Port{{Port: 1, Type: bergv1.PublicPort}, {Port: 2, Type: bergv1.PublicPort, Protocol: "udp"}, {Port: 3, Type: bergv1.PublicPort}}},
			{Hostname: "db", Ports: []bergv1.Port{{Port: 4}, {Port: 5, Type: bergv1.PublicHTTPRoute}, {Port: 6, Type: bergv1.PublicPort}}},
		}
		out.Endpoints = []manifests.Endpoint{port(30001), port(30002), port(30003), {}, port(443), port(30004)}
		tc.modify(&out)
		if got := fmt.Sprint(ToConnect(out, noon)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
