package network

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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
