package tunnelproxy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
	"github.com/bergctf/berg-operator/internal/tunnel/network"
)

// policy lets clients of the network reach the tunnels, and nodes alone the two ports by which
// the client proxy is controlled. That dials nobody, and may reach nobody.
func policy(in Inputs) *networkingv1.NetworkPolicy {
	cfg := in.Config
	ingress := []networkingv1.NetworkPolicyIngressRule{{
		From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}},
		Ports: network.PortsBeside(cfg.ControlPort, cfg.DataPort),
	}}
	// No peers would mean everybody.
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
		ObjectMeta: in.meta(in.Namespace, in.object(partClient), ""),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: in.selector()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
		},
	}
}

// nodeAddresses are those from which the server proxy on a node may come: the node's own, and
// of each of its ranges of pods the first, at which a bridge to them stands, and that of the range
// itself, which the tunnel between nodes has where there is one.
func nodeAddresses(node *corev1.Node) []netip.Addr {
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
