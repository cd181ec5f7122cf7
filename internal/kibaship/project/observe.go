package project

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kibaship/usage"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/optional"
)

// tasksDefinition is the CRD that shows that Tekton's API is installed.
const tasksDefinition = "tasks.tekton.dev"

// observe reads what a plan depends on, in the order in which one read needs another. It reads from the cache: what a decision
// must not get wrong is asked again where it is made.
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
	if err := r.observeClass(ctx, p, &o.Observed); err != nil {
		return o, err
	}
	// What follows depends on the effective spec, and not on the spec itself.
	o.Spec = r.effectiveSpec(p, o.Class)
	if bounded(o.Spec) {
		if o.Extra, o.ExtraRefused, err = r.observeExtra(ctx); err != nil {
			return o, err
		}
	}
	if o.Quota, err = apply.Found(ctx, r.Client, types.NamespacedName{Namespace: tenant, Name: naming.Limits(p.Name)}, &corev1.ResourceQuota{}); err != nil {
		return o, err
	}
	// A quota of an administrator is not the Project's usage.
	if o.Quota != nil && !ownerFor(p).Owns(o.Quota) {
		o.Quota = nil
	}
	if r.Config.Tekton != config.TektonOff {
		if o.Tekton, err = r.tektonThere(ctx); err != nil {
			return o, err
		}
	}
	if o.Usage, err = r.observeUsage(ctx, p, tenant); err != nil {
		return o, err
	}
	return o, r.observePolicies(ctx, p, &o.Observed)
}

// observeClass reads the ProjectClass that a Project names.
func (r *Reconciler) observeClass(ctx context.Context, p *kibashipv1.Project, o *Observed) (err error) {
	if p.Spec.Class == "" {
		return nil
	}
	if o.Class, err = apply.Found(ctx, r.Client, types.NamespacedName{Name: p.Spec.Class}, &kibashipv1.ProjectClass{}); err != nil || o.Class != nil {
		return err
	}
	o.Classes, err = Classes(ctx, r.Client)
	return err
}

// Classes returns the names of all ProjectClasses.
func Classes(ctx context.Context, from client.Reader) (names []string, err error) {
	var classes kibashipv1.ProjectClassList
	if err := from.List(ctx, &classes); err != nil {
		return nil, err
	}
	for i := range classes.Items {
		names = append(names, classes.Items[i].Name)
	}
	slices.Sort(names)
	return names, nil
}

// observeUsage counts what the cache has in a namespace, and adds up what the Applications ask for. The counts may be some
// seconds old. watches.go enqueues the Project after each change.
func (r *Reconciler) observeUsage(ctx context.Context, p *kibashipv1.Project, tenant string) (now usage.Now, err error) {
	var applications kibashipv1.ApplicationList
	var deployments kibashipv1.DeploymentList
	for _, list := range []client.ObjectList{&applications, &deployments} {
		if err := r.Client.List(ctx, list, client.InNamespace(tenant), client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
			return now, err
		}
	}
	now = usage.Now{Applications: int32(len(applications.Items)), Deployments: int32(len(deployments.Items)), Asked: corev1.ResourceList{}}
	for i := range applications.Items {
		spec := &applications.Items[i].Spec
		usage.Sum(now.Asked, rules.Effective(spec, &p.Spec), int64(rules.Replicas(spec)))
	}
	return now, nil
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
