package status

import (
	"net/netip"
	"slices"
	"time"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
)

// ToConnect returns the addresses that must accept a connection before an instance is Running for the first time: each
// public TCP port at the node of its pod. It is nil while another step is missing, and afterwards.
func ToConnect(out Outcome, now time.Time) []netip.AddrPort {
	o := out.Observed
	if o.Instance.Status.ReadyAt != nil || out.Problem != nil || o.Pinned == nil || o.Pinned.Defaults == nil || !o.Pinned.Defaults.StartupProbes ||
		!checkPods(o, now).ready {
		return nil
	}
	var all []netip.AddrPort
	for _, p := range manifests.NodePorts(o.Pinned.Containers, out.Endpoints) {
		live, _ := PodsOf(o.Pods, p.Container)
		at := slices.IndexFunc(live, PodReady)
		if at < 0 {
			continue
		}
		// The kubelet reports it. No other host must be reached through a status.
		if ip, err := netip.ParseAddr(live[at].Status.HostIP); err == nil && ip.IsGlobalUnicast() {
			all = append(all, netip.AddrPortFrom(ip, p.Number))
		}
	}
	return all
}
