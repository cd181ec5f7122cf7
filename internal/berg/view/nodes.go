package view

import (
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bergctf/berg-operator/internal/berg/plan"
)

// TakesInstances reports whether the scheduler may choose a node for pods of instances: the node is ready, not cordoned,
// not about to be deleted, and has no taint that keeps pods away. Pods of instances have no tolerations except the
// tolerations of their RuntimeClass.
func TakesInstances(n *corev1.Node, tolerations ...corev1.Toleration) bool {
	return IsReady(n) && isOpen(n) && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return keepsAway(&t, tolerations) })
}

// IsForInstances reports whether a node takes instances as soon as it answers and is healthy: Kubernetes taints a node that does not answer,
// or lacks memory or disk, and such a node returns as it was. What nodes can do in principle counts these nodes; capacity does not.
func IsForInstances(n *corev1.Node) bool {
	return isOpen(n) && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return keepsAway(&t, nil) && !strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
}

// IsReady reports whether a node has the condition Ready.
func IsReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isOpen(n *corev1.Node) bool { return n.DeletionTimestamp == nil && !n.Spec.Unschedulable }

func keepsAway(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	return taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(logr.Discard(), taint, false)
	})
}

// HasUserNamespaces reports whether a container runtime of a node supports user namespaces, as its kubelet says.
func HasUserNamespaces(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.RuntimeHandlers, SupportsUserNamespaces)
}

// SupportsUserNamespaces reports whether a container runtime supports user namespaces.
func SupportsUserNamespaces(h corev1.NodeRuntimeHandler) bool {
	return h.Features != nil && h.Features.UserNamespaces != nil && *h.Features.UserNamespaces
}

// SelectNodes returns the nodes that take instances.
func SelectNodes(all []corev1.Node) []corev1.Node {
	return slices.DeleteFunc(slices.Clone(all), func(n corev1.Node) bool { return !TakesInstances(&n) })
}

// NodeSize returns the allocatable size of a node without a share, in percent, that other pods have.
func NodeSize(n *corev1.Node, reserve int) plan.Node {
	part := func(amount *resource.Quantity) resource.Quantity {
		if reserve == 0 {
			return *amount
		}
		whole := amount.MilliValue()
		return *resource.NewMilliQuantity(whole-whole/100*int64(reserve), amount.Format)
	}
	size := n.Status.Allocatable
	return plan.Node{CPU: part(size.Cpu()), Memory: part(size.Memory()), Disk: part(size.StorageEphemeral()), Pods: int(size.Pods().Value()) * (100 - reserve) / 100}
}
