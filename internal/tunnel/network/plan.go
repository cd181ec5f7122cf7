package network

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"
)

// Plan is every object that a network consists of.
type Plan struct {
	// Namespace and Policy are nil if the network uses a namespace that the operator did not make.
	Namespace *corev1.Namespace
	Policy    *networkingv1.NetworkPolicy
	Binding   *rbacv1.RoleBinding
}

func plan(in Inputs) Plan {
	p := Plan{Binding: binding(in)}
	if in.Made {
		p.Namespace = namespace(in)
		p.Policy = policy(in)
	}
	return p
}

// namespace returns the namespace of a network that creates its own. A persistent one has no owner, because the garbage
// collector would delete it with the network.
func namespace(in Inputs) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: NamespaceName(in.Spec, in.Name, in.UID)}}
	if in.Spec.EffectiveMode() == tunnelv1.ModePersistent {
		ns.Annotations = map[string]string{tunnelv1.AnnotationPersistent: "true"}
	} else {
		ns.OwnerReferences = ownerReferences(in)
	}
	return ns
}

const policyName = "container-network"

// policy isolates a network: its containers reach each other and the name servers only. Policies add up, so this one must
// leave out the control and data ports of proxies; the policy of each client proxy opens these to nodes only. It has no owner, so
// that it goes with the namespace, after the last pod: the garbage collector would not wait for the pods.
func policy(in Inputs) *networkingv1.NetworkPolicy {
	among := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: NamespaceName(in.Spec, in.Name, in.UID), Name: policyName},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: among, Ports: PortsExcept(in.Closed...)}},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: among}, netpolicy.ToDNS()},
		},
	}
}

// PortsExcept returns all TCP ports but the closed ones, and all ports of other protocols. Policies only allow, so a port is
// closed by allowing all others.
func PortsExcept(closed ...int32) []networkingv1.NetworkPolicyPort {
	closed = slices.Sorted(slices.Values(closed))
	var ports []networkingv1.NetworkPolicyPort
	add := func(first, last int32, protocol corev1.Protocol) {
		if first <= last {
			ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: ptr.To(protocol), Port: ptr.To(intstr.FromInt32(first)), EndPort: ptr.To(last)})
		}
	}
	next := int32(1)
	for _, port := range closed {
		add(next, port-1, corev1.ProtocolTCP)
		next = port + 1
	}
	add(next, 65535, corev1.ProtocolTCP)
	add(1, 65535, corev1.ProtocolUDP)
	add(1, 65535, corev1.ProtocolSCTP)
	return ports
}

// binding lets the operator make proxies in the network. It has no owner: a network that is deleted in the foreground needs it
// until its last proxy is gone.
func binding(in Inputs) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: NamespaceName(in.Spec, in.Name, in.UID),
			Name:      bindingName(in),
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: Role},
		Subjects: []rbacv1.Subject{in.Operator},
	}
}

// bindingName is unique to a network: several networks may have the same namespace.
func bindingName(in Inputs) string { return "berg-operator-tunnel-" + short(in.UID) }
