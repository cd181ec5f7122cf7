package check

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/policy/api"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/netpolicies"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

const (
	policyName = "solver"
	// enterPolicyName is the name of the policy in the instance's namespace.
	enterPolicyName = "challenge-check"
)

// neverTheWay are addresses that no player uses to reach an instance: loopback, and the link-local
// ones, where clouds have their metadata.
var neverTheWay = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"),
}

// noProxies are the components of namespaces that hold no proxy of the Gateway.
var noProxies = []string{bergv1.ComponentNamespace, bergv1.ComponentCheck}

// address is how a solver gets to the instance.
type address struct {
	// Published are the ports that players see, each once.
	Published []bergv1.Port
	// Translated are the container's own ports behind node ports. A connection from inside of
	// the cluster to a node port leads to the pod before a policy is asked about it.
	Translated []bergv1.Port
}

// wayTo returns how players get to an instance.
func wayTo(i *bergv1.ChallengeInstance, challenge *bergv1.Challenge) address {
	var w address
	add := func(to *[]bergv1.Port, number int32, protocol bergv1.Protocol) {
		p := bergv1.Port{Port: number, Protocol: protocol}
		if !slices.ContainsFunc(*to, func(other bergv1.Port) bool { return other.Port == number && other.Transport() == p.Transport() }) {
			*to = append(*to, p)
		}
	}
	for _, s := range i.Status.Services {
		add(&w.Published, s.Port, bergv1.Protocol(s.Protocol))
	}
	for _, c := range challenge.Spec.Containers {
		for _, p := range c.Ports {
			if p.OnNodePort() {
				add(&w.Translated, p.Port, p.Protocol)
			}
		}
	}
	return w
}

// policies let a solver out to the name servers, to the addresses that players see, and to the
// proxies behind them; it accepts no connection. The kinds are the kinds of policies that instances
// use.
func policies(in Inputs) []client.Object {
	var out []client.Object
	if in.Config.Challenge.NetworkPolicy.Kubernetes() {
		out = append(out, kubernetesPolicy(in))
		if p := kubernetesIngress(in); p != nil {
			out = append(out, p)
		}
	}
	if in.Config.Challenge.NetworkPolicy.Cilium() {
		out = append(out, ciliumPolicy(in))
		if p := ciliumIngress(in); p != nil {
			out = append(out, p)
		}
	}
	return out
}

// kubernetesPolicy lets a solver reach the instance the way that players do, and nothing at the instance that they do not reach.
// Policies see the translated address, so the pods behind it are named, too.
func kubernetesPolicy(in Inputs) *networkingv1.NetworkPolicy {
	egress := []networkingv1.NetworkPolicyEgressRule{
		netpolicy.ToDNS(),
		// The addresses that players see may belong to nodes, and may be private. Their translation
		// inside the cluster is not known.
		{To: netpolicy.Blocks(netpolicy.Everywhere, slices.Concat(neverTheWay, in.Config.Challenge.PodCIDRs)), Ports: netpolicies.Ports(in.Way.Published)},
		// An address of the Gateway leads to its proxies, on any port that they listen on.
		{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: netpolicies.Proxies(in.Config.Gateway, noProxies...)}}},
	}
	if len(in.Way.Translated) > 0 {
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{NamespaceSelector: netpolicy.InNamespaces(in.Instance.Status.Namespace)}},
			Ports: netpolicies.Ports(in.Way.Translated),
		})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: meta(in.Check, policyName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Egress:      egress,
		},
	}
}

// kubernetesIngress lets the solver in where the whole world may come in, and only the
// Gateway's own namespaces of the cluster: the solver is no part of the world. Nil where the
// instance lets it in anyway.
func kubernetesIngress(in Inputs) *networkingv1.NetworkPolicy {
	if !in.needsIngress() {
		return nil
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: in.inInstance(enterPolicyName),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{{NamespaceSelector: netpolicy.InNamespaces(namespaceName(in.Check))}},
				Ports: netpolicies.Ports(in.Way.Translated),
			}},
		},
	}
}

// needsIngress: only where the proxies are named does an instance refuse other pods.
func (in Inputs) needsIngress() bool {
	return len(in.Way.Translated) > 0 && len(in.Config.Gateway.DataplaneNamespaces) > 0
}

// ciliumPolicy is kubernetesPolicy with the entities of Cilium. A denial goes before every permission.
func ciliumPolicy(in Inputs) *ciliumv2.CiliumNetworkPolicy {
	outside := api.EntitySlice{api.EntityWorld, api.EntityHost, api.EntityRemoteNode}
	if len(in.Config.Gateway.DataplaneNamespaces) == 0 {
		outside = append(outside, api.EntityIngress) // Cilium's own Gateway, an Envoy on every node
	}
	egress := []api.EgressRule{
		netpolicies.CiliumDNS(nil),
		{EgressCommonRule: api.EgressCommonRule{ToEntities: outside}, ToPorts: netpolicies.CiliumPorts(in.Way.Published)},
		{EgressCommonRule: api.EgressCommonRule{ToEndpoints: netpolicies.CiliumProxies(in.Config.Gateway, noProxies...)}},
	}
	if len(in.Way.Translated) > 0 {
		egress = append(egress, api.EgressRule{
			EgressCommonRule: api.EgressCommonRule{ToEndpoints: netpolicies.CiliumPodsIn(in.Instance.Status.Namespace)},
			ToPorts:          netpolicies.CiliumPorts(in.Way.Translated),
		})
	}
	var closed api.CIDRSlice
	for _, p := range neverTheWay {
		closed = append(closed, api.CIDR(p.String()))
	}
	return &ciliumv2.CiliumNetworkPolicy{
		ObjectMeta: meta(in.Check, policyName),
		Spec: &api.Rule{
			EndpointSelector: netpolicies.CiliumPods()[0],
			Egress:           egress,
			EgressDeny:       []api.EgressDenyRule{{EgressCommonRule: api.EgressCommonRule{ToCIDR: closed}}},
			Ingress:          []api.IngressRule{{}}, // which admits no connection
		},
	}
}

// ciliumIngress is kubernetesIngress for Cilium.
func ciliumIngress(in Inputs) *ciliumv2.CiliumNetworkPolicy {
	if !in.needsIngress() {
		return nil
	}
	return &ciliumv2.CiliumNetworkPolicy{
		ObjectMeta: in.inInstance(enterPolicyName),
		Spec: &api.Rule{
			EndpointSelector: netpolicies.CiliumPods()[0],
			Ingress: []api.IngressRule{{
				IngressCommonRule: api.IngressCommonRule{FromEndpoints: netpolicies.CiliumPodsIn(namespaceName(in.Check))},
				ToPorts:           netpolicies.CiliumPorts(in.Way.Translated),
			}},
		},
	}
}
