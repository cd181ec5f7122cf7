package manifests

import (
	"fmt"
	"strconv"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/policy/api"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/netpolicies"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

func ciliumNetworkPolicy(in Inputs) *ciliumv2.CiliumNetworkPolicy {
	return &ciliumv2.CiliumNetworkPolicy{
		ObjectMeta: in.meta(networkPolicyName, networkPolicyName),
		Spec: &api.Rule{
			EndpointSelector: netpolicies.CiliumPods()[0],
			Egress:           ciliumEgress(in),
			EgressDeny:       ciliumEgressDeny(in),
			Ingress:          ciliumIngress(in),
		},
	}
}

// ciliumEgress lets names be asked for by every pod, but without outbound traffic only names of the instance: a query for another
// name would carry data out.
func ciliumEgress(in Inputs) []api.EgressRule {
	var names *api.L7Rules
	if !in.Challenge.AllowOutboundTraffic {
		// In a pattern, * matches one label; names of a headless Service have two before the
		// namespace.
		zone := fmt.Sprintf("%s.svc.%s.", in.Namespace(), in.Config.ClusterDomain)
		names = &api.L7Rules{DNS: []api.PortRuleDNS{
			{MatchPattern: "*." + zone},
			{MatchPattern: "*.*." + zone},
		}}
	}
	rules := []api.EgressRule{
		netpolicies.CiliumDNS(names),
		{EgressCommonRule: api.EgressCommonRule{ToEndpoints: netpolicies.CiliumPods()}},
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

// ciliumIngress lets nodes reach all ports, because probes and node ports come from them. World reaches the ports with a node
// port, and the proxies of the Gateway the routed ones.
func ciliumIngress(in Inputs) []api.IngressRule {
	rules := []api.IngressRule{
		{IngressCommonRule: api.IngressCommonRule{FromEndpoints: netpolicies.CiliumPods()}},
		{IngressCommonRule: api.IngressCommonRule{FromEntities: api.EntitySlice{api.EntityHost, api.EntityRemoteNode}}},
	}
	public, exposed := reachablePorts(in)
	if len(public) > 0 {
		rules = append(rules, api.IngressRule{
			IngressCommonRule: api.IngressCommonRule{FromEntities: api.EntitySlice{api.EntityWorld}},
			ToPorts:           netpolicies.CiliumPorts(public),
		})
	}
	if len(exposed) > 0 {
		rules = append(rules, api.IngressRule{
			IngressCommonRule: api.IngressCommonRule{FromEndpoints: netpolicies.CiliumProxies(in.Gateway, bergv1.ComponentNamespace)},
			ToPorts:           netpolicies.CiliumPorts(exposed),
		})
		if proxy := ciliumGateway(in); len(proxy) > 0 {
			rules = append(rules, api.IngressRule{
				IngressCommonRule: api.IngressCommonRule{FromEntities: proxy},
				ToPorts:           netpolicies.CiliumPorts(exposed),
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
