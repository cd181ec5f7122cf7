package environment

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

// roleBinding has no owner reference: it goes with its namespace.
func roleBinding(in Inputs) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:      in.RoleBinding,
			Namespace: in.Namespace,
			Labels:    identity(in.ID, in.Name, quixv1.RoleBindingManagedBy),
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: in.Config.ClusterRoleName},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Name: in.Config.ServiceAccountName, Namespace: in.Config.ServiceAccountNamespace,
		}},
	}
	// An administrator may let others in beside the platform. A binding that has
	// lost the platform, or names another role, is made anew.
	if in.Bound != nil && in.Bound.RoleRef == binding.RoleRef && slices.Contains(in.Bound.Subjects, binding.Subjects[0]) {
		binding.Subjects = slices.Clone(in.Bound.Subjects)
	}
	return binding
}
