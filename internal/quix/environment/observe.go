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

// observe reads all that decides what happens to an environment, whose names must be known for that.
func (r *Reconciler) observe(ctx context.Context, env *quixv1.Environment) (o State, err error) {
	if err := r.start(ctx, env); err != nil {
		return o, err
	}
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
