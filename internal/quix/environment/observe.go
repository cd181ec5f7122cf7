package environment

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
)

// observe reads all that decides what happens to an environment, whose names must be known for that.
func (r *Reconciler) observe(ctx context.Context, env *quixv1.Environment) (o State, err error) {
	// It is stored at the first sight of a live environment. Forget removes it.
	r.live.Store(client.ObjectKeyFromObject(env), env.UID)
	if err := r.start(ctx, env); err != nil {
		return o, err
	}
	if o.Namespace, err = apply.Found(ctx, r.Client, types.NamespacedName{Name: namespaceName(env)}, &corev1.Namespace{}); err != nil {
		return o, err
	}
	if o.HolderGone, err = r.holderGone(ctx, env, o.Namespace); err != nil {
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

// holderGone reports whether a namespace names the UID of another environment, and no environment has it, as after a restore from a
// backup.
func (r *Reconciler) holderGone(ctx context.Context, env *quixv1.Environment, ns *corev1.Namespace) (bool, error) {
	if ns == nil || ns.Annotations[quixv1.AnnotationUID] == "" || ns.Annotations[quixv1.AnnotationUID] == string(env.UID) {
		return false, nil
	}
	all := &quixv1.EnvironmentList{}
	if err := r.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(all.Items, func(e quixv1.Environment) bool { return string(e.UID) == ns.Annotations[quixv1.AnnotationUID] }), nil
}
