package environment

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

// roleBinding has no owner reference: it is deleted with its namespace.
func roleBinding(in Inputs) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:      roleBindingName(in.Environment),
			Namespace: namespaceName(in.Environment),
			Labels:    identity(in.Environment, quixv1.RoleBindingManagedBy),
		},
		RoleRef:  roleRef(in),
		Subjects: []rbacv1.Subject{platform(in)},
	}
	// An administrator may add other subjects. A binding that lacks the platform, or names another role, is created again.
	if hasRights(in) {
		binding.Subjects = slices.Clone(in.Bound.Subjects)
	}
	return binding
}

func platform(in Inputs) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: in.Config.ServiceAccountName, Namespace: in.Config.ServiceAccountNamespace}
}

// hasRights reports whether the platform has its rights already.
func hasRights(in Inputs) bool {
	return in.Bound != nil && !boundElsewhere(in) && slices.Contains(in.Bound.Subjects, platform(in))
}

func roleRef(in Inputs) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: in.Config.ClusterRoleName}
}

// boundElsewhere reports whether the RoleBinding names another role, as after a change of CLUSTER_ROLE_NAME.
func boundElsewhere(in Inputs) bool { return in.Bound != nil && in.Bound.RoleRef != roleRef(in) }

// removedSubjects returns the subjects that lose the rights of the RoleBinding.
func removedSubjects(in Inputs, binding *rbacv1.RoleBinding) []rbacv1.Subject {
	if in.Bound == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(in.Bound.Subjects), func(s rbacv1.Subject) bool { return slices.Contains(binding.Subjects, s) })
}
