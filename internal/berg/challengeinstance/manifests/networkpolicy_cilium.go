package manifests

import (
	"fmt"
	"slices"
	"strconv"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/policy/api"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

const (
	podNamespaceLabel = "k8s:io.kubernetes.pod.namespace"
	// namespaceComponentLabel is the component label of a namespace as Cilium shows it on the pods in it.
	namespaceComponentLabel = "k8s:io.cilium.k8s.namespace.labels." + bergv1.LabelComponent
)

func ciliumNetworkPolicy(in Inputs) *ciliumv2.CiliumNetworkPolicy {
	return &ciliumv2.CiliumNetworkPolicy{
		ObjectMeta: in.meta(networkPolicyName, networkPolicyName),
		Spec: &api.Rule{
			EndpointSelector: selector(nil),
			Egress:           ciliumEgress(in),
			EgressDeny:       ciliumEgressDeny(in),
			Ingress:          ciliumIngress(in),
		},
	}
}

func ciliumEgress(in Inputs) []api.EgressRule {
	dns := api.PortRule{Ports: []api.PortProtocol{{Port: "53"}}}
	if !in.Challenge.AllowOutboundTraffic {
		// In a pattern, * matches one label; names of a headless Service have two before the
		// namespace.
		zone := fmt.Sprintf("%s.svc.%s.", in.Namespace(), in.Config.ClusterDomain)
		dns.Rules = &api.L7Rules{DNS: []api.PortRuleDNS{
			{MatchPattern: "*." + zone},
			{MatchPattern: "*.*." + zone},
		}}
	}
	rules := []api.EgressRule{
		{
			EgressCommonRule: api.EgressCommonRule{ToEndpoints: []api.EndpointSelector{selector(&slim.LabelSelector{
				MatchLabels: map[string]string{
					podNamespaceLabel: "kube-system",
					"k8s:k8s-app":     "kube-dns",
				},
			})}},
			ToPorts: api.PortRules{dns},
		},
		{EgressCommonRule: api.EgressCommonRule{ToEndpoints: []api.EndpointSelector{selector(nil)}}},
		{
			// The public address of the instance itself, for callbacks such as OIDC: the Gateway may run on this node or on
			// another, or belong to Cilium.
			EgressCommonRule: api.EgressCommonRule{ToEntities: append(api.EntitySlice{api.EntityHost, api.EntityRemoteNode}, ciliumGateway(in)...)},
			ToPorts: api.PortRules{{Ports: []api.PortProtocol{
				{Port: strconv.Itoa(int(in.Config.HTTPPort))},
				{Port: strconv.Itoa(int(in.Config.TLSPort))},
			}}},
		},
	}
	if in.Challenge.AllowOutboundTraffic {
		rules = append(rules, api.EgressRule{EgressCommonRule: api.EgressCommonRule{ToEntities: api.EntitySlice{api.EntityWorld}}})
	}
	return rules
}

// ciliumEgressDeny excludes addresses outside the internet from the entity world. Cilium counts the metadata service of a
// cloud and private networks outside the cluster as world. Pods and nodes never belong to it, independently of their
// addresses.
func ciliumEgressDeny(in Inputs) []api.EgressDenyRule {
	if !in.Challenge.AllowOutboundTraffic || in.Config.OutboundPrivate {
		return nil
	}
	var closed api.CIDRSlice
	for _, p := range netpolicy.NotTheWorld {
		closed = append(closed, api.CIDR(p.String()))
		if p.Addr().Is4() {
			closed = append(closed, api.CIDR(netpolicy.Translated(p).String()))
		}
	}
	return []api.EgressDenyRule{{EgressCommonRule: api.EgressCommonRule{ToCIDR: closed}}}
}

func ciliumIngress(in Inputs) []api.IngressRule {
	rules := []api.IngressRule{
		{IngressCommonRule: api.IngressCommonRule{FromEndpoints: []api.EndpointSelector{selector(nil)}}},
		{IngressCommonRule: api.IngressCommonRule{FromEntities: api.EntitySlice{api.EntityHost, api.EntityRemoteNode}}},
	}
	public, exposed := reachablePorts(in)
	if len(public) > 0 {
		rules = append(rules, api.IngressRule{
			IngressCommonRule: api.IngressCommonRule{FromEntities: api.EntitySlice{api.EntityWorld}},
			ToPorts:           portRules(public),
		})
	}
	if len(exposed) > 0 {
		rules = append(rules, api.IngressRule{
			IngressCommonRule: api.IngressCommonRule{FromEndpoints: []api.EndpointSelector{selector(dataplane(in))}},
			ToPorts:           portRules(exposed),
		})
		if proxy := ciliumGateway(in); len(proxy) > 0 {
			rules = append(rules, api.IngressRule{
				IngressCommonRule: api.IngressCommonRule{FromEntities: proxy},
				ToPorts:           portRules(exposed),
			})
		}
	}
	return rules
}

// ciliumGateway is the proxy of Cilium's own Gateway, an Envoy on every node. Its traffic has its own identity,
// independently of the client. If the namespaces of the proxies are configured, another Gateway is in use.
func ciliumGateway(in Inputs) api.EntitySlice {
	if len(in.Gateway.DataplaneNamespaces) > 0 {
		return nil
	}
	return api.EntitySlice{api.EntityIngress}
}

// dataplane selects the pods that may be proxies of the Gateway: the pods of the configured namespaces, else all pods
// outside challenge instances.
func dataplane(in Inputs) *slim.LabelSelector {
	if namespaces := in.Gateway.DataplaneNamespaces; len(namespaces) > 0 {
		return &slim.LabelSelector{MatchExpressions: []slim.LabelSelectorRequirement{
			{Key: podNamespaceLabel, Operator: slim.LabelSelectorOpIn, Values: namespaces},
		}}
	}
	return &slim.LabelSelector{MatchExpressions: []slim.LabelSelectorRequirement{
		// A namespaced policy selects pods of other namespaces only if it names the
		// namespace label.
		{Key: podNamespaceLabel, Operator: slim.LabelSelectorOpExists},
		{Key: namespaceComponentLabel, Operator: slim.LabelSelectorOpNotIn, Values: []string{bergv1.ComponentNamespace}},
	}}
}

// maxPortsPerRule is Cilium's limit on the ports of one rule.
const maxPortsPerRule = 40

func portRules(ports []bergv1.Port) api.PortRules {
	var rules api.PortRules
	for chunk := range slices.Chunk(ports, maxPortsPerRule) {
		var rule api.PortRule
		for _, p := range chunk {
			rule.Ports = append(rule.Ports, api.PortProtocol{Port: strconv.Itoa(int(p.Port)), Protocol: api.L4Proto(p.Transport())})
		}
		rules = append(rules, rule)
	}
	return rules
}

// selector keeps the keys as written. Cilium's own constructors rewrite them, so that the
// object read back would differ from the plan.
func selector(s *slim.LabelSelector) api.EndpointSelector {
	if s == nil {
		s = &slim.LabelSelector{}
	}
	return api.EndpointSelector{LabelSelector: s}
}
