package project

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
)

// required returns the policies that a Project relies on.
func (p Policies) required(spec kibashipv1.ProjectSpec) []*admissionpolicy.Policy {
	if spec.NetworkPolicy == nil {
		return []*admissionpolicy.Policy{p.Fence, p.Tenants}
	}
	return p.all()
}

func (p Policies) all() []*admissionpolicy.Policy {
	return []*admissionpolicy.Policy{p.Fence, p.Tenants, p.Confined}
}

// observePolicies finds out whether a policy is missing, and which rights have been given already. Bound and Integrated cost
// reads, which are needed only while a policy is missing.
func (r *Reconciler) observePolicies(ctx context.Context, p *kibashipv1.Project, o *Observed) (err error) {
	if o.MissingPolicy, err = admissionpolicy.Missing(ctx, r.Policies.required(p.Spec)...); err != nil || o.MissingPolicy == "" {
		return err
	}
	in := r.inputs(p, *o)
	if o.Bound, err = r.grants(ctx, operatorBinding(in)); err != nil {
		return err
	}
	for _, binding := range []*rbacv1.RoleBinding{sharedBinding(in.Operator), tektonBinding(in)} {
		if o.Integrated, err = r.grants(ctx, binding); err != nil || !o.Integrated {
			return err
		}
	}
	return nil
}

// grants reports whether a RoleBinding exists that grants the same as desired. The cache keeps only the identity of a very large
// one, which counts as granting.
func (r *Reconciler) grants(ctx context.Context, desired *rbacv1.RoleBinding) (bool, error) {
	live, err := apply.Found(ctx, r.Client, types.NamespacedName{Namespace: desired.Namespace, Name: desired.Name}, &rbacv1.RoleBinding{})
	if live == nil || err != nil {
		return false, err
	}
	return cache.Reduced(live) || live.RoleRef == desired.RoleRef && slices.Contains(live.Subjects, desired.Subjects[0]), nil
}
