package manifests

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/netpolicies"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

// kubernetesNetworkPolicy is the CiliumNetworkPolicy as far as networking.k8s.io can express it:
// docs/adr/0011-standard-network-policy.md.
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

// kubernetesEgress cannot limit the names that are asked for. Addresses of nodes and pods are left out of the world as far as
// they are known.
func kubernetesEgress(in Inputs) []networkingv1.NetworkPolicyEgressRule {
	rules := []networkingv1.NetworkPolicyEgressRule{
		netpolicy.ToDNS(),
		{To: sameNamespace()},
	}
	if len(in.Config.NodeCIDRs) > 0 {
		// The public address of the instance itself, for callbacks such as OIDC: the Gateway
		// may run on this node, which is always allowed, or on another.
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{
			To:    netpolicy.Blocks(in.Config.NodeCIDRs, nil),
			Ports: netpolicy.AnyProtocol(in.Config.HTTPPort, in.Config.TLSPort),
		})
	}
	if in.Challenge.AllowOutboundTraffic {
		except := slices.Concat(in.Config.NodeCIDRs, in.Config.PodCIDRs)
		if !in.Config.OutboundPrivate {
			except = slices.Concat(netpolicy.NotTheWorld, except)
		}
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: netpolicy.Blocks(netpolicy.Everywhere, except)})
	}
	return rules
}

// kubernetesIngress names nodes by their addresses, since a policy of Kubernetes has no other name for them.
func kubernetesIngress(in Inputs) []networkingv1.NetworkPolicyIngressRule {
	rules := []networkingv1.NetworkPolicyIngressRule{{From: sameNamespace()}}
	if len(in.Config.NodeCIDRs) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{From: netpolicy.Blocks(in.Config.NodeCIDRs, nil)})
	}
	public, exposed := reachablePorts(in)
	if len(public) > 0 {
		// Private addresses are allowed: players of an event may be in the same building, and
		// traffic through another node has the address of that node. Other instances are
		// kept out by their own egress rules, and here if the addresses of pods are known.
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{
			From:  netpolicy.Blocks(netpolicy.Everywhere, in.Config.PodCIDRs),
			Ports: netpolicies.Ports(public),
		})
	}
	if len(exposed) > 0 {
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{
			From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: netpolicies.Proxies(in.Gateway, bergv1.ComponentNamespace)}},
			Ports: netpolicies.Ports(exposed),
		})
	}
	return rules
}

func sameNamespace() []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
}
