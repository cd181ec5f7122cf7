// Package netpolicy has the parts of network policies of networking.k8s.io: address ranges,
// ports, and the rule for the cluster's name servers.
package netpolicy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var (
	// Everywhere are all addresses.
	Everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

	// NotTheWorld are the addresses that lead to the cluster, its neighbours or
	// nowhere: https://www.iana.org/assignments/iana-ipv4-special-registry and
	// iana-ipv6-special-registry, as far as they are not globally reachable.
	NotTheWorld = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),      // this network
		netip.MustParsePrefix("10.0.0.0/8"),     // private
		netip.MustParsePrefix("100.64.0.0/10"),  // shared by carriers and their customers
		netip.MustParsePrefix("127.0.0.0/8"),    // loopback
		netip.MustParsePrefix("169.254.0.0/16"), // link-local: metadata of clouds
		netip.MustParsePrefix("172.16.0.0/12"),  // private
		netip.MustParsePrefix("192.0.0.0/24"),   // protocol assignments
		netip.MustParsePrefix("192.168.0.0/16"), // private
		netip.MustParsePrefix("198.18.0.0/15"),  // benchmarks
		netip.MustParsePrefix("224.0.0.0/4"),    // multicast
		netip.MustParsePrefix("240.0.0.0/4"),    // reserved, broadcast
		netip.MustParsePrefix("::/127"),         // unspecified, loopback
		netip.MustParsePrefix("64:ff9b:1::/48"), // local translation to IPv4
		netip.MustParsePrefix("fc00::/7"),       // private
		netip.MustParsePrefix("fe80::/10"),      // link-local
		netip.MustParsePrefix("ff00::/8"),       // multicast
	}

	// translated is the range at which gateways of IPv6 networks map all of IPv4 (RFC 6052).
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

// Blocks returns ranges as peers, without the excepted addresses and without their
// translations to IPv6.
func Blocks(ranges, except []netip.Prefix) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for _, r := range ranges {
		block := &networkingv1.IPBlock{CIDR: r.String()}
		for _, e := range except {
			if r.Addr().Is6() && e.Addr().Is4() {
				e = Translated(e)
			}
			if r.Overlaps(e) && !slices.Contains(block.Except, e.String()) {
				block.Except = append(block.Except, e.String())
			}
		}
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	return out
}

// Translated returns the IPv6 range at which gateways map an IPv4 range.
func Translated(v4 netip.Prefix) netip.Prefix {
	prefix := translated.Addr().As16()
	embedded := v4.Addr().As4()
	copy(prefix[12:], embedded[:])
	return netip.PrefixFrom(netip.AddrFrom16(prefix), translated.Bits()+v4.Bits())
}

// ToDNS allows pods to reach the cluster's name servers, where most clusters run them. It names pods and not the address of the
// Service: a policy is applied after the address was translated to a pod's.
func ToDNS() networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{
		To: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: InNamespaces("kube-system"),
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		}},
		Ports: AnyProtocol(53),
	}
}

// InNamespaces selects namespaces by their names.
func InNamespaces(names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names},
	}}
}

// AnyProtocol are ports over TCP and UDP.
func AnyProtocol(numbers ...int32) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, n := range numbers {
		out = append(out, Port(n, corev1.ProtocolTCP), Port(n, corev1.ProtocolUDP))
	}
	return out
}

// Port is the number of a port over a protocol.
func Port(number int32, transport corev1.Protocol) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromInt32(number)), Protocol: ptr.To(transport)}
}
