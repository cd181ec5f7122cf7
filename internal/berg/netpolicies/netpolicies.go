// Package netpolicies has the parts that the network policies of instances and of solvers share, for networking.k8s.io and for
// Cilium. It is pure.
package netpolicies

import (
	"slices"
	"strconv"

	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/policy/api"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

const (
	// podNamespaceLabel is how Cilium shows a pod's namespace, namespaceComponentLabel the component label of that namespace.
	podNamespaceLabel       = "k8s:io.kubernetes.pod.namespace"
	namespaceComponentLabel = "k8s:io.cilium.k8s.namespace.labels." + bergv1.LabelComponent
	// maxPortsPerRule is Cilium's limit on the ports of one rule.
	maxPortsPerRule = 40
)

// Proxies selects the namespaces that may hold the proxies of the Gateway: the configured ones, else all except namespaces with
// these components.
func Proxies(g config.Gateway, except ...string) *metav1.LabelSelector {
	if names := g.DataplaneNamespaces; len(names) > 0 {
		return netpolicy.InNamespaces(names...)
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: bergv1.LabelComponent, Operator: metav1.LabelSelectorOpNotIn, Values: except},
	}}
}

// Ports are the ports of a rule.
func Ports(ports []bergv1.Port) []networkingv1.NetworkPolicyPort {
	out := make([]networkingv1.NetworkPolicyPort, 0, len(ports))
	for _, p := range ports {
		out = append(out, netpolicy.Port(p.Port, p.Transport()))
	}
	return out
}

// CiliumProxies selects the pods in the namespaces of Proxies.
func CiliumProxies(g config.Gateway, except ...string) []api.EndpointSelector {
	if names := g.DataplaneNamespaces; len(names) > 0 {
		return endpoints(&slim.LabelSelector{MatchExpressions: []slim.LabelSelectorRequirement{
			{Key: podNamespaceLabel, Operator: slim.LabelSelectorOpIn, Values: names},
		}})
	}
	return endpoints(&slim.LabelSelector{MatchExpressions: []slim.LabelSelectorRequirement{
		// A namespaced policy selects pods of other namespaces only if it names the namespace label.
		{Key: podNamespaceLabel, Operator: slim.LabelSelectorOpExists},
		{Key: namespaceComponentLabel, Operator: slim.LabelSelectorOpNotIn, Values: except},
	}})
}

// CiliumPods selects all pods of the policy's own namespace.
func CiliumPods() []api.EndpointSelector { return endpoints(&slim.LabelSelector{}) }

// CiliumPodsIn selects all pods of a namespace.
func CiliumPodsIn(namespace string) []api.EndpointSelector {
	return endpoints(&slim.LabelSelector{MatchLabels: map[string]string{podNamespaceLabel: namespace}})
}

// CiliumDNS leads to the name servers of the cluster, for names that rules allow; nil are all names.
func CiliumDNS(rules *api.L7Rules) api.EgressRule {
	return api.EgressRule{
		EgressCommonRule: api.EgressCommonRule{ToEndpoints: endpoints(&slim.LabelSelector{
			MatchLabels: map[string]string{podNamespaceLabel: "kube-system", "k8s:k8s-app": "kube-dns"},
		})},
		ToPorts: api.PortRules{{Ports: []api.PortProtocol{{Port: "53"}}, Rules: rules}},
	}
}

// CiliumPorts are the ports of a rule.
func CiliumPorts(ports []bergv1.Port) api.PortRules {
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

// endpoints keeps the keys as written. Cilium's own constructors rewrite them, and the object that is read back would then differ
// from the plan.
func endpoints(s *slim.LabelSelector) []api.EndpointSelector {
	return []api.EndpointSelector{{LabelSelector: s}}
}
