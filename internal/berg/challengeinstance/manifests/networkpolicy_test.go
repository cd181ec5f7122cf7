package manifests

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/policy/api"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// peer is the other end of a connection.
type peer struct {
	// entity is host, remote-node, ingress or world; empty for a pod.
	entity    api.Entity
	namespace string
	component string // of the namespace
	labels    map[string]string
	address   string
}

const ownNamespace = "challenge-a1b2c3d4-e5f6-7890-abcd-ef1234567890"

var peers = map[string]peer{
	"own pod":         {namespace: ownNamespace, component: "challenge", address: "10.244.1.7"},
	"other instance":  {namespace: "challenge-99999999-e5f6-7890-abcd-ef1234567890", component: "challenge", address: "10.244.1.8"},
	"its public port": {namespace: "challenge-99999999-e5f6-7890-abcd-ef1234567890", component: "challenge", address: "2001:db8:2::8"},
	"proxy":           {namespace: "traefik", address: "10.244.1.9"},
	"Cilium's proxy":  {entity: api.EntityIngress, address: "10.244.1.11"},
	"other pod":       {namespace: "monitoring", address: "10.244.1.10"},
	"dns":             {namespace: "kube-system", labels: map[string]string{"k8s-app": "kube-dns"}, address: "10.244.1.2"},
	"kube-system pod": {namespace: "kube-system", address: "10.244.1.3"},
	"fake dns":        {namespace: "default", labels: map[string]string{"k8s-app": "kube-dns"}, address: "10.244.1.4"},
	"own node":        {entity: api.EntityHost, address: "192.0.2.1"},
	"other node":      {entity: api.EntityRemoteNode, address: "192.0.2.2"},
	"internet":        {entity: api.EntityWorld, address: "203.0.113.10"},
	"internet v6":     {entity: api.EntityWorld, address: "2001:db8:ffff::10"},
	"private network": {entity: api.EntityWorld, address: "192.168.7.7"},
	"metadata":        {entity: api.EntityWorld, address: "169.254.169.254"},
	"NAT64 metadata":  {entity: api.EntityWorld, address: "64:ff9b::a9fe:a9fe"},
	"NAT64 internet":  {entity: api.EntityWorld, address: "64:ff9b::cb00:710a"},
	"private v6":      {entity: api.EntityWorld, address: "fd00::1"},
}

// The two policies admit and refuse the same packets. Where they cannot, the
// table says how they differ.
func TestPoliciesAgree(t *testing.T) {
	ports := []bergv1.Port{
		{Port: 80, Type: bergv1.PublicHTTPRoute},
		{Port: 1337, Type: bergv1.PublicPort},
		{Port: 5353, Protocol: "udp", Type: bergv1.PublicPort},
		{Port: 5432},
	}
	inputs := func(outbound bool, env map[string]string) Inputs {
		return testInputs(testConfig(t, env), Snapshot{
			AllowOutboundTraffic: outbound,
			Containers:           []bergv1.Container{{Hostname: "web", Image: "i", Ports: ports}},
		})
	}
	known := map[string]string{"CLUSTER_NODE_CIDRS": "192.0.2.0/24", "CLUSTER_POD_CIDRS": "10.244.0.0/16,2001:db8:2::/64"}
	closed, outbound := inputs(false, known), inputs(true, known)
	proxies := inputs(true, map[string]string{"CLUSTER_NODE_CIDRS": "192.0.2.0/24", "CLUSTER_POD_CIDRS": "10.244.0.0/16,2001:db8:2::/64", "GATEWAY_DATAPLANE_NAMESPACES": "traefik"})
	private := inputs(true, map[string]string{"CLUSTER_NODE_CIDRS": "192.0.2.0/24", "CLUSTER_POD_CIDRS": "10.244.0.0/16,2001:db8:2::/64", "CHALLENGE_OUTBOUND_PRIVATE": "true"})
	unknown := inputs(true, nil)

	const both, neither, onlyCilium, onlyKubernetes = "both", "neither", "only Cilium", "only Kubernetes"
	for _, tc := range []struct {
		in                    Inputs
		direction, peer, port string
		allowed               string
	}{
		{closed, "to", "dns", "53/UDP", both},
		{closed, "to", "dns", "53/TCP", both},
		{closed, "to", "dns", "9153/TCP", neither},
		{closed, "to", "kube-system pod", "53/UDP", neither},
		{closed, "to", "fake dns", "53/UDP", neither},
		{closed, "to", "own pod", "5432/TCP", both},
		{closed, "to", "own pod", "53/UDP", both},
		{closed, "to", "other instance", "1337/TCP", neither},
		{closed, "to", "other pod", "80/TCP", neither},
		{closed, "to", "proxy", "80/TCP", neither},
		{closed, "to", "own node", "80/TCP", both},
		{closed, "to", "other node", "80/TCP", both},
		{closed, "to", "other node", "443/TCP", both},
		{closed, "to", "other node", "443/UDP", both},
		{closed, "to", "other node", "6443/TCP", neither},
		{closed, "to", "Cilium's proxy", "80/TCP", onlyCilium},
		{closed, "to", "Cilium's proxy", "443/TCP", onlyCilium},
		{closed, "to", "Cilium's proxy", "9901/TCP", neither},
		{outbound, "to", "Cilium's proxy", "8080/TCP", neither},
		{closed, "to", "other node", "10250/TCP", neither},
		// Kubernetes lets a pod always talk to its own node.
		{closed, "to", "own node", "10250/TCP", onlyKubernetes},
		{closed, "to", "internet", "443/TCP", neither},
		{closed, "to", "internet v6", "443/TCP", neither},
		{closed, "to", "metadata", "80/TCP", neither},
		{closed, "to", "private network", "22/TCP", neither},

		{outbound, "to", "internet", "443/TCP", both},
		{outbound, "to", "internet", "53/UDP", both},
		{outbound, "to", "internet v6", "443/TCP", both},
		{outbound, "to", "NAT64 internet", "443/TCP", both},
		{outbound, "to", "other instance", "1337/TCP", neither},
		{outbound, "to", "its public port", "1337/TCP", neither},
		{outbound, "to", "other pod", "80/TCP", neither},
		{outbound, "to", "other node", "10250/TCP", neither},
		{outbound, "to", "metadata", "80/TCP", neither},
		{outbound, "to", "NAT64 metadata", "80/TCP", neither},
		{outbound, "to", "private network", "22/TCP", neither},
		{outbound, "to", "private v6", "22/TCP", neither},
		{private, "to", "internet", "443/TCP", both},
		{private, "to", "metadata", "80/TCP", both},
		{private, "to", "private network", "22/TCP", both},
		{private, "to", "other instance", "1337/TCP", neither},

		{closed, "from", "own pod", "5432/TCP", both},
		{closed, "from", "own node", "5432/TCP", both},
		{closed, "from", "other node", "5432/TCP", both},
		{closed, "from", "internet", "1337/TCP", both},
		{closed, "from", "internet v6", "1337/TCP", both},
		{closed, "from", "private network", "1337/TCP", both},
		{closed, "from", "internet", "1337/UDP", neither},
		{closed, "from", "internet", "5353/UDP", both},
		{closed, "from", "internet", "5353/TCP", neither},
		{closed, "from", "internet", "80/TCP", neither},
		{closed, "from", "internet", "5432/TCP", neither},
		{closed, "from", "proxy", "80/TCP", both},
		{closed, "from", "proxy", "5432/TCP", neither},
		// A standard policy has no word for it.
		{closed, "from", "Cilium's proxy", "80/TCP", onlyCilium},
		{closed, "from", "Cilium's proxy", "5432/TCP", neither},
		{closed, "from", "Cilium's proxy", "80/UDP", neither},
		{closed, "from", "other pod", "80/TCP", both},
		{closed, "from", "other pod", "1337/TCP", both},
		{closed, "from", "other instance", "80/TCP", neither},
		{closed, "from", "other instance", "1337/TCP", neither},
		{closed, "from", "other instance", "5432/TCP", neither},
		{closed, "from", "its public port", "1337/TCP", neither},

		{proxies, "from", "proxy", "80/TCP", both},
		{proxies, "from", "other pod", "80/TCP", neither},
		{proxies, "from", "Cilium's proxy", "80/TCP", neither},
		{proxies, "to", "Cilium's proxy", "80/TCP", neither},
		{proxies, "from", "other instance", "80/TCP", neither},

		// Without the addresses of nodes and pods.
		{unknown, "to", "other node", "80/TCP", both}, // as a part of the world, if public
		{unknown, "to", "other instance", "1337/TCP", neither},
		{unknown, "from", "other node", "80/TCP", onlyCilium},
		{unknown, "from", "other node", "1337/TCP", both},
		{unknown, "from", "other instance", "80/TCP", neither},
		// Its own policy does not let it: see the egress above.
		{unknown, "from", "other instance", "1337/TCP", onlyKubernetes},
	} {
		other, ok := peers[tc.peer]
		if !ok {
			t.Fatalf("no peer %q", tc.peer)
		}
		number, proto, _ := strings.Cut(tc.port, "/")
		port, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		cilium := ciliumAllows(t, ciliumNetworkPolicy(tc.in).Spec, tc.direction, other, port, proto)
		kubernetes := kubernetesAllows(t, kubernetesNetworkPolicy(tc.in), tc.direction, other, port, proto)
		got := map[[2]bool]string{{true, true}: both, {true, false}: onlyCilium, {false, true}: onlyKubernetes}[[2]bool{cilium, kubernetes}]
		if got == "" {
			got = neither
		}
		if got != tc.allowed {
			t.Errorf("outbound %v, nodes %v: %s %s, %s: allowed by %s, want %s",
				tc.in.Challenge.AllowOutboundTraffic, tc.in.Config.NodeCIDRs, tc.direction, tc.peer, tc.port, got, tc.allowed)
		}
	}
}

// No instance reaches another, not even its public ports.
func TestInstancesDoNotReachEachOther(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"private addresses": nil,
		"public addresses":  {"CLUSTER_POD_CIDRS": "2001:db8:2::/64"},
	} {
		in := testInputs(testConfig(t, env), Snapshot{AllowOutboundTraffic: true, Containers: []bergv1.Container{
			{Hostname: "web", Image: "i", Ports: []bergv1.Port{{Port: 1337, Type: bergv1.PublicPort}}},
		}})
		other := peers["other instance"]
		if env != nil {
			other = peers["its public port"]
		}
		reached := kubernetesAllows(t, kubernetesNetworkPolicy(in), "to", other, 1337, "TCP") &&
			kubernetesAllows(t, kubernetesNetworkPolicy(in), "from", other, 1337, "TCP")
		if reached {
			t.Errorf("%s: an instance reaches another", name)
		}
	}
}

// kubernetesAllows judges a packet by the rules of networking.k8s.io/v1.
func kubernetesAllows(t *testing.T, policy *networkingv1.NetworkPolicy, direction string, other peer, port int, proto string) bool {
	t.Helper()
	if other.entity == api.EntityHost {
		return true // by definition: the node of a pod is never cut off from it
	}
	if len(policy.Spec.PodSelector.MatchLabels)+len(policy.Spec.PodSelector.MatchExpressions) > 0 {
		t.Fatal("the policy does not select all pods")
	}
	if direction == "to" {
		if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			return true
		}
		return slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return kubernetesPeers(t, policy.Namespace, r.To, other) && kubernetesPorts(r.Ports, port, proto)
		})
	}
	if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		return true
	}
	return slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
		return kubernetesPeers(t, policy.Namespace, r.From, other) && kubernetesPorts(r.Ports, port, proto)
	})
}

func kubernetesPeers(t *testing.T, own string, allowed []networkingv1.NetworkPolicyPeer, other peer) bool {
	t.Helper()
	return len(allowed) == 0 || slices.ContainsFunc(allowed, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			// As the strictest reading has it, also for pods.
			addr := netip.MustParseAddr(other.address)
			within := func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(addr) }
			return within(p.IPBlock.CIDR) && !slices.ContainsFunc(p.IPBlock.Except, within)
		}
		if other.entity != "" {
			return false
		}
		namespaceLabels := labels.Set{corev1.LabelMetadataName: other.namespace}
		if other.component != "" {
			namespaceLabels[bergv1.LabelComponent] = other.component
		}
		if p.NamespaceSelector == nil && other.namespace != own {
			return false
		}
		return (p.NamespaceSelector == nil || selects(t, p.NamespaceSelector, namespaceLabels)) &&
			(p.PodSelector == nil || selects(t, p.PodSelector, other.labels))
	})
}

func kubernetesPorts(allowed []networkingv1.NetworkPolicyPort, port int, proto string) bool {
	return len(allowed) == 0 || slices.ContainsFunc(allowed, func(p networkingv1.NetworkPolicyPort) bool {
		return (p.Port == nil || p.Port.IntValue() == port) && string(*p.Protocol) == proto
	})
}

func selects(t *testing.T, by *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(by)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(set)
}

// ciliumAllows judges a packet by the rules of a CiliumNetworkPolicy.
func ciliumAllows(t *testing.T, rule *api.Rule, direction string, other peer, port int, proto string) bool {
	t.Helper()
	if direction == "to" {
		// Only the world has addresses to Cilium.
		denied := other.entity == api.EntityWorld && slices.ContainsFunc(rule.EgressDeny, func(r api.EgressDenyRule) bool {
			return slices.ContainsFunc(r.ToCIDR, func(c api.CIDR) bool {
				return netip.MustParsePrefix(string(c)).Contains(netip.MustParseAddr(other.address))
			})
		})
		if denied {
			return false
		}
		return len(rule.Egress) == 0 || slices.ContainsFunc(rule.Egress, func(r api.EgressRule) bool {
			return ciliumPeers(t, r.ToEndpoints, r.ToEntities, other) && ciliumPorts(r.ToPorts, port, proto)
		})
	}
	return len(rule.Ingress) == 0 || slices.ContainsFunc(rule.Ingress, func(r api.IngressRule) bool {
		return ciliumPeers(t, r.FromEndpoints, r.FromEntities, other) && ciliumPorts(r.ToPorts, port, proto)
	})
}

// The labels with which Cilium shows the namespace of a pod.
const (
	podNamespaceLabel       = "k8s:io.kubernetes.pod.namespace"
	namespaceComponentLabel = "k8s:io.cilium.k8s.namespace.labels." + bergv1.LabelComponent
)

func ciliumPeers(t *testing.T, endpoints []api.EndpointSelector, entities api.EntitySlice, other peer) bool {
	t.Helper()
	if other.entity != "" {
		return slices.Contains(entities, other.entity)
	}
	set := labels.Set{bare(podNamespaceLabel): other.namespace}
	if other.component != "" {
		set[bare(namespaceComponentLabel)] = other.component
	}
	for key, value := range other.labels {
		set[key] = value
	}
	return slices.ContainsFunc(endpoints, func(e api.EndpointSelector) bool {
		plain := asSelector(e.LabelSelector)
		named := strings.Contains(metav1.FormatLabelSelector(plain), bare(podNamespaceLabel))
		// A selector that does not name a namespace means its own.
		return selects(t, plain, set) && (named || other.namespace == ownNamespace)
	})
}

// bare is a key without the prefix that says where Cilium has the label from.
func bare(key string) string { return strings.TrimPrefix(key, "k8s:") }

// asSelector turns Cilium's copy of the type into the original.
func asSelector(s *slim.LabelSelector) *metav1.LabelSelector {
	out := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for key, value := range s.MatchLabels {
		out.MatchLabels[bare(key)] = value
	}
	for _, e := range s.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: bare(e.Key), Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values,
		})
	}
	return out
}

func ciliumPorts(allowed api.PortRules, port int, proto string) bool {
	return len(allowed) == 0 || slices.ContainsFunc(allowed, func(r api.PortRule) bool {
		return slices.ContainsFunc(r.Ports, func(p api.PortProtocol) bool {
			return p.Port == strconv.Itoa(port) && (p.Protocol == "" || p.Protocol == api.ProtoAny || string(p.Protocol) == proto)
		})
	})
}
