package environment

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Observed is everything outside the environment that its reconciliation depends on.
type Observed struct {
	// Namespace of the environment's name, which may belong to another environment; nil if there is none.
	Namespace *corev1.Namespace
	// RoleBinding of the environment's name with the operator's label; nil if there is none.
	RoleBinding *rbacv1.RoleBinding
	// HolderGone: the namespace names the UID of an environment that does not exist.
	HolderGone bool
	// Role is the platform's ClusterRole; nil if there is none.
	Role *rbacv1.ClusterRole
	// Unfenced says which admission policy is missing, without which nothing may be bound; empty if none is.
	Unfenced string
}

// State is what one reconciliation observed of an environment and did for it.
type State struct {
	Observed
	// NamespaceUID is the UID of the namespace; empty if it was not written.
	NamespaceUID       types.UID
	NamespaceCreated   bool
	RoleBindingCreated bool
}

// Deletion is what one reconciliation observed and did of an environment that is being deleted.
type Deletion struct {
	// Namespace of the environment's name; nil when it is gone.
	Namespace *corev1.Namespace
	// Unconfirmed: the deletion was not necessarily meant for the tenant, and nothing was done.
	Unconfirmed bool
	// NotOwned: it does not belong to this environment.
	NotOwned bool
	// Collected: the garbage collector deletes it nevertheless, because its owner reference names the environment.
	Collected bool
	// UnbindErr and DeleteErr are why binding and namespace were not deleted.
	UnbindErr, DeleteErr error
}
