package tunnelproxy

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
)

// TrimPod keeps in the cache only the fields of a pod that the reconciliation of pairs reads.
func TrimPod(p *corev1.Pod) {
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName}
	for _, c := range p.Spec.Containers {
		kept := corev1.Container{Name: c.Name, Ports: c.Ports}
		if manifests.RunsOwnImage(c) {
			kept.Command = c.Command
		}
		spec.Containers = append(spec.Containers, kept)
	}
	p.Spec = spec
	var conditions []corev1.PodCondition
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.PodScheduled {
			conditions = append(conditions, corev1.PodCondition{Type: c.Type, Status: c.Status, Message: c.Message})
		}
	}
	p.Status.Conditions = conditions
}

// TrimNode keeps in the cache only the fields of a node that the reconciliations of networks and pairs read. The
// status of a node is written often.
func TrimNode(n *corev1.Node) {
	status := corev1.NodeStatus{Addresses: n.Status.Addresses, DaemonEndpoints: n.Status.DaemonEndpoints}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	n.Status = status
	n.Spec = corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs}
	n.Annotations, n.Labels, n.ManagedFields = nil, nil, nil
}
