package status

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// ToConnect returns the addresses that must accept a connection before an instance is Running for the first time: each
// public TCP port at the node of its pod. It is nil while another step is missing, and afterwards. After the first time the
// addresses are not tried again: a later failure shows in the pods and their routes.
func ToConnect(out Outcome, now time.Time) []netip.AddrPort {
	if !connects(out) || out.Instance.Status.ReadyAt != nil || !checkPods(out.Observed, now).ready {
		return nil
	}
	return nodePorts(out)
}

// Opening has the connections that the operator tries before the node of a pod tries its startup probe, once a second.
type Opening struct {
	// Pods run for the first time, and have never been ready.
	Pods []types.UID
	// Addresses must accept a connection: the startup port of each pod, and the addresses that ToConnect returns later. It
	// is nil while a container does not run.
	Addresses []netip.AddrPort
}

// ToOpen returns the addresses that may accept connections although a pod is not ready. Only the first attempt of a
// container counts: a container that has ended before is left to its node.
func ToOpen(out Outcome, now time.Time) Opening {
	if !connects(out) {
		return Opening{}
	}
	var to Opening
	complete := out.Instance.Status.ReadyAt == nil
	for _, c := range out.Pinned.Containers {
		ready, _, _ := checkContainer(out.Observed, c, now)
		live, _ := ContainerPods(out.Pods, c.Hostname)
		port := manifests.StartupPort(c)
		for _, p := range live {
			if PodReady(p) {
				continue
			}
			ip, err := netip.ParseAddr(p.Status.PodIP)
			if port == 0 || !runsFirst(p) || err != nil || !ip.IsGlobalUnicast() {
				complete = false
				continue
			}
			to.Pods = append(to.Pods, p.UID)
			if !Begins(p) { // an earlier connection to it counts, a new one waits for the node
				complete = false
				continue
			}
			to.Addresses = append(to.Addresses, netip.AddrPortFrom(ip, uint16(port)))
		}
		complete = complete && (ready || len(live) == 1)
	}
	if !complete || len(to.Pods) == 0 {
		to.Addresses = nil
		return to
	}
	to.Addresses = append(to.Addresses, nodePorts(out)...)
	return to
}

// connects reports whether the operator connects to an instance.
func connects(out Outcome) bool {
	return out.Problem == nil && out.Pinned != nil
}

// nodePorts returns each public TCP port at the node of its pod.
func nodePorts(out Outcome) []netip.AddrPort {
	var all []netip.AddrPort
	for _, p := range manifests.NodePorts(out.Pinned.Containers, out.Endpoints) {
		live, _ := ContainerPods(out.Pods, p.Container)
		index := slices.IndexFunc(live, func(p *corev1.Pod) bool { return PodReady(p) || Begins(p) })
		if index < 0 {
			continue
		}
		// The kubelet reports the address. A status that names another host must not make the operator connect to it, so
		// only an address that can belong to a node counts.
		if ip, err := netip.ParseAddr(live[index].Status.HostIP); err == nil && ip.IsGlobalUnicast() {
			all = append(all, netip.AddrPortFrom(ip, p.Number))
		}
	}
	return all
}

// Begins reports whether the containers of a pod run for the first time, and it is not ready only because a startup probe has
// not succeeded yet.
func Begins(p *corev1.Pod) bool {
	return runsFirst(p) && !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready && !awaitsProbe(s) })
}

// runsFirst reports whether the containers of a pod run for the first time, and it has never been ready. A node reports first
// that a startup probe has succeeded, and only later that the pod is ready: between the two, nothing contradicts a connection
// that the operator has made.
func runsFirst(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning && !PodReady(p) && len(p.Status.ContainerStatuses) > 0 &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.State.Running == nil || s.RestartCount > 0 || wasReadySince(p, s.State.Running.StartedAt.Time)
		})
}

// awaitsProbe reports whether a container has a startup probe that has not succeeded yet.
func awaitsProbe(s corev1.ContainerStatus) bool { return s.Started != nil && !*s.Started }

// opened reports whether the program of a container accepts connections, although its pod is not ready yet.
func opened(o Observed, c bergv1.Container, p *corev1.Pod) bool {
	return o.Opened && runsFirst(p) && manifests.StartupPort(c) != 0
}
