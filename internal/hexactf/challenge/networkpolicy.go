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

// networkPolicies isolate a challenge: its components reach each other and the name servers, and players reach only the
// ports that a component publishes, at that component. All other traffic is denied.
func networkPolicies(in Inputs) (all []*networkingv1.NetworkPolicy) {
	challengeWide := challengePolicy(in)
	for _, component := range in.Snapshot.Components {
		ports := publishedPorts(component)
		if len(ports) == 0 {
			continue
		}
		// From any address: traffic through another node has that node's address, and players of an event may be in a
		// private network.
		published := []networkingv1.NetworkPolicyIngressRule{{Ports: ports}}
		if len(in.Snapshot.Components) == 1 {
			// Most challenges have one component, and need one object less.
			challengeWide.Spec.Ingress = append(challengeWide.Spec.Ingress, published...)
			continue
		}
		all = append(all, &networkingv1.NetworkPolicy{
			ObjectMeta: in.confining(in.prefix(component.Name)+ingressSuffix, in.labels(component.Name)),
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: in.selector(component.Name)},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				Ingress:     published,
			},
		})
	}
	return append(all, challengeWide)
}

// challengePolicy applies to every pod of a challenge. It names both directions, so a pod gets and sends only what a rule of one
// of its policies allows.
func challengePolicy(in Inputs) *networkingv1.NetworkPolicy {
	own := map[string]string{hexactfv1.LabelPartOf: partOfLabel(in.Name.Name)}
	peers := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: own}}}
	egress := []networkingv1.NetworkPolicyEgressRule{{To: peers}, netpolicy.ToDNS()}
	switch kind, pods := in.Snapshot.Egress, in.Snapshot.PodCIDRs; kind {
	case config.EgressInternet:
		except := slices.Concat(netpolicy.NotTheWorld, pods)
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{To: netpolicy.Blocks(netpolicy.Everywhere, except)})
	case config.EgressAll:
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{})
	}
	labels := map[string]string{
		hexactfv1.LabelPartOf:    partOfLabel(in.Name.Name),
		hexactfv1.LabelManagedBy: hexactfv1.ManagedBy,
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: in.confining(policyName(in.Name.Name), labels),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: own},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers}},
			Egress:      egress,
		},
	}
}

// policyName contains the name of the challenge, which is unique in its namespace.
func policyName(challenge string) string {
	return naming.Within(challenge, maxName-len(policySuffix)) + policySuffix
}

// publishedPorts are the ports of a component's pods that players reach through node ports or a load balancer.
func publishedPorts(component hexactfv1.Component) (out []networkingv1.NetworkPolicyPort) {
	if component.Service == nil {
		return nil
	}
	switch component.Service.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		return nil
	}
	for _, p := range component.Service.Spec.Ports {
		port := networkingv1.NetworkPolicyPort{Port: ptr.To(targetPort(p)), Protocol: ptr.To(cmp.Or(p.Protocol, corev1.ProtocolTCP))}
		if !slices.ContainsFunc(out, func(o networkingv1.NetworkPolicyPort) bool {
			return *o.Port == *port.Port && *o.Protocol == *port.Protocol
		}) {
			out = append(out, port)
		}
	}
	return out
}

// targetPort is the port of the pod that a port of a Service leads to, a number or a name.
func targetPort(p corev1.ServicePort) intstr.IntOrString {
	if p.TargetPort.Type == intstr.String && p.TargetPort.StrVal != "" || p.TargetPort.IntVal != 0 {
		return p.TargetPort
	}
	return intstr.FromInt32(p.Port)
}
