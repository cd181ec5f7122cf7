package challenge

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/naming"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

// networkPolicy isolates a challenge: its components reach each other and the name servers,
// players reach the exposed ports, and nobody else anything.
func networkPolicy(in Inputs) *networkingv1.NetworkPolicy {
	own := map[string]string{hexactfv1.LabelPartOf: partOf(in.Name.Name)}
	among := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: own}}}
	ingress := []networkingv1.NetworkPolicyIngressRule{{From: among}}
	if ports := exposedPorts(in.Snapshot.Components); len(ports) > 0 {
		// From anywhere: what comes by another node bears that node's address, and players of
		// an event may sit in the same building.
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{Ports: ports})
	}
	egress := []networkingv1.NetworkPolicyEgressRule{{To: among}, netpolicy.ToDNS()}
	switch kind, pods := in.egress(); kind {
	case config.EgressInternet:
		except := slices.Concat(netpolicy.NotTheWorld, pods)
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{To: netpolicy.Blocks(netpolicy.Everywhere, except)})
	case config.EgressAll:
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{})
	}
	labels := map[string]string{
		hexactfv1.LabelPartOf:    partOf(in.Name.Name),
		hexactfv1.LabelManagedBy: hexactfv1.ManagedBy,
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: in.meta(policyName(in.Name.Name), labels),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: own},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress,
			Egress:      egress,
		},
	}
}

// policyName is made of the name of the challenge, which no other one in its namespace has.
func policyName(challenge string) string {
	return naming.Within(challenge, longestName-len(policySuffix)) + policySuffix
}

// exposedPorts are those of the pods that players reach, by node ports or a load balancer.
func exposedPorts(components []hexactfv1.Component) []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort
	for _, component := range components {
		if component.Service == nil {
			continue
		}
		switch component.Service.Spec.Type {
		case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		default:
			continue
		}
		for _, p := range component.Service.Spec.Ports {
			port := networkingv1.NetworkPolicyPort{Port: ptr.To(targetOf(p)), Protocol: ptr.To(cmp.Or(p.Protocol, corev1.ProtocolTCP))}
			if !slices.ContainsFunc(out, func(o networkingv1.NetworkPolicyPort) bool {
				return *o.Port == *port.Port && *o.Protocol == *port.Protocol
			}) {
				out = append(out, port)
			}
		}
	}
	return out
}

// targetOf is the port of the pod that a port of a Service leads to, a number or a name.
func targetOf(p corev1.ServicePort) intstr.IntOrString {
	if p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "" || p.TargetPort.IntVal != 0 {
		return p.TargetPort
	}
	return intstr.FromInt32(p.Port)
}
