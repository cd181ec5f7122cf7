package project

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

// Observed is the input of a reconciliation besides the Project itself.
type Observed struct {
	// Operator is who the operator is to the API server: it binds itself in namespaces.
	Operator rbacv1.Subject
	// SameUUID are all Projects of its uuid, itself among them.
	SameUUID []kibashipv1.Project
	// Namespace of the Project's name, no matter to which Project it belongs; nil when there is none.
	Namespace *corev1.Namespace
	// Admin is the ClusterRole by which the operator works there; nil when there is none.
	Admin *rbacv1.ClusterRole
	// Extra are the rules that an administrator adds to the rules of bounded Projects; ExtraRefused names the ClusterRoles that
	// are not added.
	Extra        []rbacv1.PolicyRule
	ExtraRefused []string
	// Tekton says whether its namespace and its API exist. False where TEKTON_MODE is off.
	Tekton bool
	// Quota is the Project's ResourceQuota; nil when there is none.
	Quota *corev1.ResourceQuota
	// Applications and Deployments are how many there are in the namespace.
	Applications, Deployments int32
	// MissingPolicy says which admission policy is not in force that the Project relies on; empty if none is missing. Bound and
	// Integrated are known only then.
	MissingPolicy string
	// Bound: the operator has its rights in the namespace. Integrated: both have theirs in the namespace of Tekton.
	Bound, Integrated bool
}

// State holds the observations and results of one reconciliation of a Project.
type State struct {
	Observed
	Mode config.TektonMode
	// NamespaceUID is the UID of the namespace; empty if it was not written.
	NamespaceUID     types.UID
	NamespaceCreated bool
}

// observe reads the input of a reconciliation from the cache. The list of Projects with the same uuid may lag
// behind: the webhook and the next event of the other Project make up for that.
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
	if bounded(p.Spec) {
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
	switch l := list.(type) {
	case *kibashipv1.ApplicationList:
		return int32(len(l.Items)), nil
	case *kibashipv1.DeploymentList:
		return int32(len(l.Items)), nil
	default:
		return 0, nil
	}
}
