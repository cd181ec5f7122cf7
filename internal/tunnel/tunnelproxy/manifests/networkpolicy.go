package manifests

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
)

// policy lets clients in the network reach the tunnels, and only nodes reach the two ports by which the client proxy is
// controlled. The client proxy opens no connections, so it has no egress. The policy has no owner: the operator deletes it after the
// proxies.
func policy(in Inputs) *networkingv1.NetworkPolicy {
	meta := in.meta(in.Namespace, in.object(pairobjects.PartClient), "")
	meta.OwnerReferences = nil
	cfg := in.Config
	ingress := []networkingv1.NetworkPolicyIngressRule{{
		From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}},
		Ports: network.PortsExcept(cfg.ControlPort, cfg.DataPort),
	}}
	// A rule without peers would allow all sources.
	if len(in.Nodes) > 0 {
		var blocks []netip.Prefix
		for _, address := range in.Nodes {
			blocks = append(blocks, netip.PrefixFrom(address, address.BitLen()))
		}
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{
			From: netpolicy.Blocks(blocks, nil),
			Ports: []networkingv1.NetworkPolicyPort{
				netpolicy.Port(cfg.ControlPort, corev1.ProtocolTCP), netpolicy.Port(cfg.DataPort, corev1.ProtocolTCP),
			},
		})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: meta,
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: in.selector()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
		},
	}
}

// NodeAddresses returns the addresses from which the server proxy on a node may connect: the addresses of the node, and
// the first two of each of its pod ranges. The second one is usually the address of the bridge, the first one the
// address of an overlay's device. They are sorted and each is there once, so that the policy does not change with their order.
func NodeAddresses(node *corev1.Node) []netip.Addr {
	if node == nil {
		return nil
	}
	var all []netip.Addr
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			all = append(all, ip.Unmap())
		}
	}
	for _, cidr := range node.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			all = append(all, prefix.Masked().Addr(), prefix.Masked().Addr().Next())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// InternalIP returns the first internal address of a node, "" if there is none. node may be nil.
func InternalIP(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
