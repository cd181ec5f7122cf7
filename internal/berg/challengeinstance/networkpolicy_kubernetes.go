package challengeinstance

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// kubernetesNetworkPolicy is the CiliumNetworkPolicy in the words of
// networking.k8s.io, as far as these go: docs/adr/0011-standard-network-policy.md.
func kubernetesNetworkPolicy(in Inputs) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: in.meta(networkPolicyName, networkPolicyName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      kubernetesEgress(in),
			Ingress:     kubernetesIngress(in),
		},
	}
}

func kubernetesEgress(in Inputs) []networkingv1.NetworkPolicyEgressRule {
	rules := []networkingv1.NetworkPolicyEgressRule{
		{
			To: []networkingv1.NetworkPolicyPeer{{
				NamespaceSelector: inNamespaces("kube-system"),
				PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
			}},
			Ports: overAnyProtocol(53),
		},
		{To: sameNamespace()},
	}
	if len(in.Config.NodeCIDRs) > 0 {
		// The instance's own public address, for callbacks such as OIDC: the
		// gateway may run on this node, which is always allowed, or on another.
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{
			To:    blocks(in.Config.NodeCIDRs, nil),
			Ports: overAnyProtocol(in.Config.HTTPPort, in.Config.TLSPort),
		})
	}
	if in.Challenge.AllowOutboundTraffic {
		except := slices.Concat(in.Config.NodeCIDRs, in.Config.PodCIDRs)
		if !in.Config.OutboundPrivate {
			except = slices.Concat(notTheWorld, except)
		}
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: blocks(everywhere, except)})
	}
	return rules
}

func kubernetesIngress(in Inputs) []networkingv1.NetworkPolicyIngressRule {
	rules := []networkingv1.NetworkPolicyIngressRule{{From: sameNamespace()}}
	if len(in.Config.NodeCIDRs) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: blocks(in.Config.NodeCIDRs, nil)})
	}
	public, exposed := reachablePorts(in)
	if len(public) > 0 {
		// Private addresses are not left out: players of an event may sit in the same
		// building, and what comes by another node has that node's address. Other
		// instances are kept out by their own egress, and here where the addresses of
		// pods are known.
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{
			From:  blocks(everywhere, in.Config.PodCIDRs),
			Ports: policyPorts(public),
		})
	}
	if len(exposed) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{
			From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: proxyNamespaces(in)}},
			Ports: policyPorts(exposed),
		})
	}
	return rules
}

// proxyNamespaces selects the namespaces of the gateway's proxies: the named
// ones, else all but those of challenge instances.
func proxyNamespaces(in Inputs) *metav1.LabelSelector {
	if names := in.Gateway.DataplaneNamespaces; len(names) > 0 {
		return inNamespaces(names...)
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: bergv1.LabelComponent, Operator: metav1.LabelSelectorOpNotIn, Values: []string{bergv1.ComponentNamespace}},
	}}
}

func inNamespaces(names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names},
	}}
}

func sameNamespace() []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
}

func policyPorts(ports []bergv1.Port) []networkingv1.NetworkPolicyPort {
	out := make([]networkingv1.NetworkPolicyPort, 0, len(ports))
	for _, p := range ports {
		out = append(out, policyPort(p.Port, protocol(p)))
	}
	return out
}

func overAnyProtocol(numbers ...int32) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, n := range numbers {
		out = append(out, policyPort(n, corev1.ProtocolTCP), policyPort(n, corev1.ProtocolUDP))
	}
	return out
}

func policyPort(number int32, transport corev1.Protocol) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromInt32(number)), Protocol: ptr.To(transport)}
}

var (
	everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

	// notTheWorld are the addresses that lead to the cluster, its neighbours or
	// nowhere: https://www.iana.org/assignments/iana-ipv4-special-registry and
	// iana-ipv6-special-registry, as far as they are not globally reachable.
	notTheWorld = []netip.Prefix{
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

	// translated is where gateways of IPv6 networks show all of IPv4 (RFC 6052).
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

// blocks returns the ranges as peers, without the excepted addresses, which
// must not be reached by their translation either.
func blocks(ranges, except []netip.Prefix) []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer
	for _, r := range ranges {
		block := &networkingv1.IPBlock{CIDR: r.String()}
		for _, e := range except {
			if r.Addr().Is6() && e.Addr().Is4() {
				e = translation(e)
			}
			if r.Overlaps(e) && !slices.Contains(block.Except, e.String()) {
				block.Except = append(block.Except, e.String())
			}
		}
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: block})
	}
	return out
}

func translation(v4 netip.Prefix) netip.Prefix {
	prefix := translated.Addr().As16()
	embedded := v4.Addr().As4()
	copy(prefix[12:], embedded[:])
	return netip.PrefixFrom(netip.AddrFrom16(prefix), translated.Bits()+v4.Bits())
}
