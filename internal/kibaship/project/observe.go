package project

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/optional"
)

// tasksDefinition is the CRD that shows that Tekton's API is installed.
const tasksDefinition = "tasks.tekton.dev"

func (r *Reconciler) observe(ctx context.Context, p *kibashipv1.Project) (o State, err error) {
	o.Mode = r.Config.Tekton
	if o.Operator, err = r.Identity(ctx); err != nil {
		return o, err
	}
	if id := p.Labels[kibashipv1.LabelUUID]; id != "" {
		var same kibashipv1.ProjectList
		if err := r.Client.List(ctx, &same, client.MatchingFields{IndexUUID: id}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
			return o, err
		}
		o.SameUUID = same.Items
	}
	tenant := naming.Namespace(p.Name)
	if o.Namespace, err = apply.Found(ctx, r.Client, types.NamespacedName{Name: tenant}, &corev1.Namespace{}); err != nil {
		return o, err
	}
	if o.Admin, err = apply.Found(ctx, r.Client, types.NamespacedName{Name: r.Config.ProjectAdmin}, &rbacv1.ClusterRole{}); err != nil {
		return o, err
	}
	if bounded(r.effectiveSpec(p)) {
		if o.Extra, o.ExtraRefused, err = r.observeExtra(ctx); err != nil {
			return o, err
		}
	}
	if o.Quota, err = apply.Found(ctx, r.Client, types.NamespacedName{Namespace: tenant, Name: naming.Limits(p.Name)}, &corev1.ResourceQuota{}); err != nil {
		return o, err
	}
	if o.Quota != nil && !ownerFor(p).Owns(o.Quota) {
		o.Quota = nil
	}
	if r.Config.Tekton != config.TektonOff {
		if o.Tekton, err = r.tektonThere(ctx); err != nil {
			return o, err
		}
	}
	if o.Applications, err = count(ctx, r.Client, &kibashipv1.ApplicationList{}, tenant); err != nil {
		return o, err
	}
	if o.Deployments, err = count(ctx, r.Client, &kibashipv1.DeploymentList{}, tenant); err != nil {
		return o, err
	}
	return o, r.observePolicies(ctx, p, &o.Observed)
}

// tektonThere reports whether Tekton is installed, and not being removed.
func (r *Reconciler) tektonThere(ctx context.Context) (bool, error) {
	ns, err := apply.Found(ctx, r.Client, types.NamespacedName{Name: naming.TektonNamespace}, &corev1.Namespace{})
	if ns == nil || err != nil || ns.DeletionTimestamp != nil {
		return false, err
	}
	definition, err := apply.Found(ctx, r.Client, types.NamespacedName{Name: tasksDefinition}, optional.Definition())
	return definition != nil && definition.DeletionTimestamp == nil, err
}

// count returns the number of objects of a kind that the cache has in a namespace.
func count(ctx context.Context, c client.Reader, list client.ObjectList, tenant string) (int32, error) {
	if err := c.List(ctx, list, client.InNamespace(tenant), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return 0, err
	}
	return int32(meta.LenList(list)), nil
}
