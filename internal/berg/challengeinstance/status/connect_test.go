package status

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
		"the node's own loopback":  {func(o *Outcome) { o.Pods[0].Status.HostIP = "127.0.0.1" }, "[[fd00::6]:30004]"},
		"a cloud's metadata":       {func(o *Outcome) { o.Pods[0].Status.HostIP = "169.254.169.254" }, "[[fd00::6]:30004]"},
		"a name":                   {func(o *Outcome) { o.Pods[0].Status.HostIP = "attacker.example" }, "[[fd00::6]:30004]"},
		"no node yet":              {func(o *Outcome) { o.Pods[0].Status.HostIP = "" }, "[[fd00::6]:30004]"},
		"addresses are not known":  {func(o *Outcome) { o.Endpoints = nil }, "[]"},
		"turned off by the author": {func(o *Outcome) { o.Pinned.Containers[0].Ports[0].ConnectAtStart = ptr.To(false) }, "[10.0.0.5:30003 [fd00::6]:30004]"},
	} {
		out := startingWith(nil, on("web", "10.0.0.5", true), on("db", "fd00::6", true))
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

func TestProgramsMayBeOpenBeforeTheirPodsAreReady(t *testing.T) {
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	begun := func(container, ip string) corev1.Pod {
		p := pod(container, false)
		p.UID = types.UID("uid-" + container)
		p.Status.HostIP, p.Status.PodIP = "10.0.0.5", ip
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: container, State: runs, Started: ptr.To(false)}}
		return p
	}
	const all = "[uid-web uid-db] [10.1.0.1:8000 10.1.0.2:1337 10.0.0.5:30002]"
	for name, tc := range map[string]struct {
		modify func(*Outcome)
		want   string
	}{
		"both run": {func(*Outcome) {}, all},
		"one is ready": {func(o *Outcome) {
			o.Pods[0] = pod("web", true)
		}, "[uid-db] [10.1.0.2:1337 10.0.0.5:30002]"},
		"both are ready": {func(o *Outcome) { o.Pods = []corev1.Pod{pod("web", true), pod("db", true)} }, "[] []"},
		"one does not run": {func(o *Outcome) {
			o.Pods[1].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		}, "[uid-web] []"},
		"one has no pod":             {func(o *Outcome) { o.Pods = o.Pods[:1] }, "[uid-web] []"},
		"one has ended before":       {func(o *Outcome) { o.Pods[1].Status.ContainerStatuses[0].RestartCount = 1 }, "[uid-web] []"},
		"one has a readiness probe":  {func(o *Outcome) { o.Pinned.Containers[1].ReadinessProbe = &corev1.Probe{} }, "[uid-web] []"},
		"turned off by the author":   {func(o *Outcome) { o.Pinned.Containers[1].Ports[0].ConnectAtStart = ptr.To(false) }, "[uid-web] []"},
		"a loopback":                 {func(o *Outcome) { o.Pods[1].Status.PodIP = "127.0.0.1" }, "[uid-web] []"},
		"a cloud's metadata":         {func(o *Outcome) { o.Pods[1].Status.PodIP = "169.254.169.254" }, "[uid-web] []"},
		"Running since a moment ago": {func(o *Outcome) { wasReady(o.Instance) }, "[uid-web uid-db] []"},
		"a problem":                  {func(o *Outcome) { o.Problem = BeingBuilt }, "[] []"},
	} {
		out := startingWith(nil, begun("web", "10.1.0.1"), begun("db", "10.1.0.2"))
		out.Pinned.Containers = []bergv1.Container{
			{Hostname: "web", Ports: []bergv1.Port{{Port: 8000, Type: bergv1.PublicHTTPRoute}}},
			{Hostname: "db", Ports: []bergv1.Port{{Port: 1337, Type: bergv1.PublicPort}}},
		}
		out.Endpoints = []manifests.Endpoint{{Service: &bergv1.ServiceEndpoint{Port: 443}}, {Service: &bergv1.ServiceEndpoint{Port: 30002}}}
		tc.modify(&out)
		to := ToOpen(out, noon)
		if got := fmt.Sprint(to.Pods, " ", to.Addresses); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestAProgramThatIsOpenCountsAsReady(t *testing.T) {
	for name, tc := range map[string]struct {
		modify func(*Outcome)
		want   bool
	}{
		"open":                    {func(*Outcome) {}, true},
		"not open":                {func(o *Outcome) { o.Opened = false }, false},
		"its probe has succeeded": {func(o *Outcome) { o.Pods[0].Status.ContainerStatuses[0].Started = ptr.To(true) }, true},
		"it was ready": {func(o *Outcome) {
			o.Pods[0].Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-time.Minute))
		}, false},
		"it is evicted":           {func(o *Outcome) { o.Pods[0].Status.Phase = corev1.PodFailed }, false},
		"it is deleted":           {func(o *Outcome) { o.Pods[0].DeletionTimestamp = &metav1.Time{Time: noon} }, false},
		"its program has ended":   {func(o *Outcome) { o.Pods[0].Status.ContainerStatuses[0].RestartCount = 1 }, false},
		"it has a probe":          {func(o *Outcome) { o.Pinned.Containers[0].ReadinessProbe = &corev1.Probe{} }, false},
		"it has no public port":   {func(o *Outcome) { o.Pinned.Containers[0].Ports = nil }, false},
		"it is a later container": {func(o *Outcome) { o.Pinned.Containers[0].Hostname = "db" }, false},
	} {
		out := startingWith(nil, pod("web", false))
		out.Opened = true
		out.Pinned.Containers[0].Ports = []bergv1.Port{{Port: 8000, Type: bergv1.PublicHTTPRoute}}
		out.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Started: ptr.To(false), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-time.Hour))}}}}
		tc.modify(&out)
		if got := checkPods(out.Observed, noon).ready; got != tc.want {
			t.Errorf("%s: ready is %t", name, got)
		}
	}
}
