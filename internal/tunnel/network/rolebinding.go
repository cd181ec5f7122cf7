package network

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
