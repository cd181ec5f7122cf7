package check

import (
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/policy/api"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

const (
	policyName = "solver"
	// enterPolicyName is the name of the policy in the instance's namespace.
	enterPolicyName = "challenge-check"
	// podNamespaceLabel is how Cilium shows a pod's namespace, namespaceComponentLabel the
	// component label of that.
	podNamespaceLabel       = "k8s:io.kubernetes.pod.namespace"
	namespaceComponentLabel = "k8s:io.cilium.k8s.namespace.labels." + bergv1.LabelComponent
)

// neverTheWay are addresses that no player uses to reach an instance: loopback, and the link-local
// ones, where clouds have their metadata.
var neverTheWay = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"),
}

// address is how a solver gets to the instance.
type address struct {
	// Published are the ports that players see, each once.
	Published []netPort
	// Translated are the container's own ports behind node ports. A connection from inside of
	// the cluster to a node port leads to the pod before a policy is asked about it.
	Translated []netPort
}

type netPort struct {
	Number   int32
	Protocol corev1.Protocol
}

// wayTo returns how players get to an instance.
func wayTo(i *bergv1.ChallengeInstance, challenge *bergv1.Challenge) address {
	var w address
	add := func(to *[]netPort, number int32, protocol corev1.Protocol) {
		p := netPort{number, protocol}
		if !slices.Contains(*to, p) {
			*to = append(*to, p)
		}
	}
	for _, s := range i.Status.Services {
		add(&w.Published, s.Port, bergv1.Protocol(s.Protocol).Transport())
	}
	for _, c := range challenge.Spec.Containers {
		for _, p := range c.Ports {
			if p.OnNodePort() {
				add(&w.Translated, p.Port, p.Transport())
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

func kubernetesPolicy(in Inputs) *networkingv1.NetworkPolicy {
	egress := []networkingv1.NetworkPolicyEgressRule{
		netpolicy.ToDNS(),
		// The addresses that players see may belong to nodes, and may be private. Their translation
		// inside the cluster is not known.
		{To: netpolicy.Blocks(netpolicy.Everywhere, slices.Concat(neverTheWay, in.Config.Challenge.PodCIDRs)), Ports: policyPorts(in.Way.Published)},
		// An address of the Gateway leads to its proxies, on any port that they listen on.
		{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: proxies(in)}}},
	}
	if len(in.Way.Translated) > 0 {
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{
			To:    []networkingv1.NetworkPolicyPeer{{NamespaceSelector: netpolicy.InNamespaces(in.Instance.Status.Namespace)}},
			Ports: policyPorts(in.Way.Translated),
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
				Ports: policyPorts(in.Way.Translated),
			}},
		},
	}
}

// needsIngress: only where the proxies are named does an instance refuse other pods.
func (in Inputs) needsIngress() bool {
	return len(in.Way.Translated) > 0 && len(in.Config.Gateway.DataplaneNamespaces) > 0
}

// proxies selects the namespaces that may hold the Gateway's proxies: the named ones, else all
// except namespaces of instances and of other solvers.
func proxies(in Inputs) *metav1.LabelSelector {
	if names := in.Config.Gateway.DataplaneNamespaces; len(names) > 0 {
		return netpolicy.InNamespaces(names...)
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: bergv1.LabelComponent, Operator: metav1.LabelSelectorOpNotIn, Values: []string{bergv1.ComponentNamespace, bergv1.ComponentCheck}},
	}}
}

func policyPorts(ports []netPort) []networkingv1.NetworkPolicyPort {
	out := make([]networkingv1.NetworkPolicyPort, 0, len(ports))
	for _, p := range ports {
		out = append(out, netpolicy.Port(p.Number, p.Protocol))
	}
	return out
}

func ciliumPolicy(in Inputs) *ciliumv2.CiliumNetworkPolicy {
	outside := api.EntitySlice{api.EntityWorld, api.EntityHost, api.EntityRemoteNode}
	proxy := &slim.LabelSelector{MatchExpressions: []slim.LabelSelectorRequirement{
		{Key: podNamespaceLabel, Operator: slim.LabelSelectorOpIn, Values: in.Config.Gateway.DataplaneNamespaces},
	}}
	if len(in.Config.Gateway.DataplaneNamespaces) == 0 {
		// Cilium's own Gateway, an Envoy on every node, or any pod.
		outside = append(outside, api.EntityIngress)
		proxy = &slim.LabelSelector{MatchExpressions: []slim.LabelSelectorRequirement{
			{Key: podNamespaceLabel, Operator: slim.LabelSelectorOpExists},
			{Key: namespaceComponentLabel, Operator: slim.LabelSelectorOpNotIn, Values: []string{bergv1.ComponentNamespace, bergv1.ComponentCheck}},
		}}
	}
	egress := []api.EgressRule{
		{
			EgressCommonRule: api.EgressCommonRule{ToEndpoints: endpoints(&slim.LabelSelector{
				MatchLabels: map[string]string{podNamespaceLabel: "kube-system", "k8s:k8s-app": "kube-dns"},
			})},
			ToPorts: api.PortRules{{Ports: []api.PortProtocol{{Port: "53"}}}},
		},
		{EgressCommonRule: api.EgressCommonRule{ToEntities: outside}, ToPorts: portRules(in.Way.Published)},
		{EgressCommonRule: api.EgressCommonRule{ToEndpoints: endpoints(proxy)}},
	}
	if len(in.Way.Translated) > 0 {
		egress = append(egress, api.EgressRule{
			EgressCommonRule: api.EgressCommonRule{ToEndpoints: endpoints(&slim.LabelSelector{
				MatchLabels: map[string]string{podNamespaceLabel: in.Instance.Status.Namespace},
			})},
			ToPorts: portRules(in.Way.Translated),
		})
	}
	var closed api.CIDRSlice
	for _, p := range neverTheWay {
		closed = append(closed, api.CIDR(p.String()))
	}
	return &ciliumv2.CiliumNetworkPolicy{
		ObjectMeta: meta(in.Check, policyName),
		Spec: &api.Rule{
			EndpointSelector: endpoints(&slim.LabelSelector{})[0],
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
			EndpointSelector: endpoints(&slim.LabelSelector{})[0],
			Ingress: []api.IngressRule{{
				IngressCommonRule: api.IngressCommonRule{FromEndpoints: endpoints(&slim.LabelSelector{
					MatchLabels: map[string]string{podNamespaceLabel: namespaceName(in.Check)},
				})},
				ToPorts: portRules(in.Way.Translated),
			}},
		},
	}
}

// endpoints keeps the keys as written. Cilium's own constructors rewrite them, and the written form
// would then differ from the stored one.
func endpoints(s *slim.LabelSelector) []api.EndpointSelector {
	return []api.EndpointSelector{{LabelSelector: s}}
}

// maxPortsPerRule is Cilium's limit on the ports of one rule.
const maxPortsPerRule = 40

func portRules(ports []netPort) api.PortRules {
	var rules api.PortRules
	for chunk := range slices.Chunk(ports, maxPortsPerRule) {
		var rule api.PortRule
		for _, p := range chunk {
			rule.Ports = append(rule.Ports, api.PortProtocol{Port: strconv.Itoa(int(p.Number)), Protocol: api.L4Proto(p.Protocol)})
		}
		rules = append(rules, rule)
	}
	return rules
}
