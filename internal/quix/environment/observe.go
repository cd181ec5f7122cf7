package environment

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
)

// Observed is everything outside the environment that its reconciliation depends on.
type Observed struct {
	// Namespace of the environment's name, which may belong to another environment; nil if there is none.
	Namespace *corev1.Namespace
	// RoleBinding of the environment's name with the operator's label; nil if there is none.
	RoleBinding *rbacv1.RoleBinding
	// Role is the platform's ClusterRole; nil if there is none.
	Role *rbacv1.ClusterRole
	// Unfenced says which admission policy is missing, without which nothing may be bound; empty if none is.
	Unfenced string
}

// State holds the observations and results of one reconciliation of an environment.
type State struct {
	Observed
	// NamespaceUID is the UID of the namespace; empty if it was not written.
	NamespaceUID       types.UID
	NamespaceCreated   bool
	RoleBindingCreated bool
}

func (r *Reconciler) observe(ctx context.Context, env *quixv1.Environment) (o State, err error) {
	if o.Namespace, err = apply.Found(ctx, r.Client, types.NamespacedName{Name: namespaceName(env)}, &corev1.Namespace{}); err != nil {
		return o, err
	}
	if o.RoleBinding, err = apply.Found(ctx, r.Client, roleBindingKey(env), &rbacv1.RoleBinding{}); err != nil {
		return o, err
	}
	if o.RoleBinding != nil && cache.Reduced(o.RoleBinding) {
		// The cached copy has no subjects, and the subjects decide the write.
		if o.RoleBinding, err = apply.Found(ctx, r.Writer.Live, roleBindingKey(env), &rbacv1.RoleBinding{}); err != nil {
			return o, err
		}
	}
	if o.Role, err = apply.Found(ctx, r.Client, types.NamespacedName{Name: r.Config.ClusterRoleName}, &rbacv1.ClusterRole{}); err != nil {
		return o, err
	}
	o.Unfenced, err = admissionpolicy.Missing(ctx, r.Fence)
	return o, err
}
