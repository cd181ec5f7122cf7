package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/optional"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// checkBounds reports objects that predate the bounds of a Project and exceed them. The Project's accounts can no longer create
// such objects. The operator did not create them, and deletes none.
func (r *Reconciler) checkBounds(ctx context.Context, p *kibashipv1.Project, in Inputs) (*outcome.Problem, error) {
	if !bounded(in.Spec) {
		return nil, nil
	}
	if wider, err := r.checkRights(ctx, p, in); wider != nil || err != nil {
		return wider, err
	}
	if p.Spec.NetworkPolicy == nil {
		return nil, nil
	}
	return r.checkOpenings(ctx, p)
}

// checkRights reports bindings in the namespace that grant more than the bounds leave. The operator did not create them and does
// not delete them.
func (r *Reconciler) checkRights(ctx context.Context, p *kibashipv1.Project, in Inputs) (*outcome.Problem, error) {
	tenant := naming.Namespace(p.Name)
	var bindings rbacv1.RoleBindingList
	if err := r.Writer.Live.List(ctx, &bindings, client.InNamespace(tenant)); err != nil {
		return nil, fmt.Errorf("list the role bindings of namespace %s: %w", tenant, err)
	}
	var wider []string
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if ownerFor(p).Owns(b) || !ofTenants(b) {
			continue
		}
		rules, err := r.grantedRules(ctx, b)
		if err != nil {
			return nil, err
		}
		if covered, _ := validation.Covers(adminRole(in).Rules, rules); !covered {
			wider = append(wider, b.Name)
		}
	}
	return boundsProblem(tenant, wider), nil
}

// ofTenants reports whether a binding is for accounts of Projects: of this Project, or of another one to which it granted its
// rights. An administrator owns all other bindings.
func ofTenants(b *rbacv1.RoleBinding) bool {
	ofProject := func(tenant string) bool {
		_, matched := naming.ParseNamespace(tenant)
		return matched
	}
	return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
		if s.Kind == rbacv1.ServiceAccountKind {
			return ofProject(s.Namespace)
		}
		if group, matched := strings.CutPrefix(s.Name, "system:serviceaccounts:"); matched {
			return ofProject(group)
		}
		if user, matched := strings.CutPrefix(s.Name, "system:serviceaccount:"); matched {
			tenant, _, _ := strings.Cut(user, ":")
			return ofProject(tenant)
		}
		return slices.Contains([]string{"system:serviceaccounts", "system:authenticated", "system:unauthenticated"}, s.Name)
	})
}

// grantedRules returns the rules that a binding grants; none where its role does not exist.
func (r *Reconciler) grantedRules(ctx context.Context, b *rbacv1.RoleBinding) ([]rbacv1.PolicyRule, error) {
	if b.RoleRef.Kind == "ClusterRole" {
		// The operator may list ClusterRoles, and get none.
		var roles rbacv1.ClusterRoleList
		if err := r.Writer.Live.List(ctx, &roles, client.MatchingFields{metav1.ObjectNameField: b.RoleRef.Name}); err != nil || len(roles.Items) == 0 {
			return nil, err
		}
		return roles.Items[0].Rules, nil
	}
	role, err := apply.Found(ctx, r.Writer.Live, types.NamespacedName{Namespace: b.Namespace, Name: b.RoleRef.Name}, &rbacv1.Role{})
	if role == nil || err != nil {
		return nil, err
	}
	return role.Rules, nil
}

// ciliumDefinition is the CRD of Cilium's policies.
const ciliumDefinition = "ciliumnetworkpolicies.cilium.io"

// checkOpenings reports policies that let more through than the network policy of the Project, because policies add up. An
// administrator's have a label that no account of a Project may set.
func (r *Reconciler) checkOpenings(ctx context.Context, p *kibashipv1.Project) (*outcome.Problem, error) {
	tenant := naming.Namespace(p.Name)
	var policies networkingv1.NetworkPolicyList
	if err := r.Writer.Live.List(ctx, &policies, client.InNamespace(tenant)); err != nil {
		return nil, fmt.Errorf("list the network policies of namespace %s: %w", tenant, err)
	}
	var open []string
	for i := range policies.Items {
		if policy := &policies.Items[i]; policy.Name != naming.Limits(p.Name) && opens(policy) {
			open = append(open, policy.Name)
		}
	}
	definition, err := apply.Found(ctx, r.Client, types.NamespacedName{Name: ciliumDefinition}, optional.Definition())
	if err != nil {
		return nil, err
	}
	if definition != nil {
		cilium := &metav1.PartialObjectMetadataList{}
		cilium.SetGroupVersionKind(schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNetworkPolicyList"})
		// A role of the operator that does not reach them gave no account a right to them either.
		if err := r.Writer.Live.List(ctx, cilium, client.InNamespace(tenant)); apply.IgnoreAbsent(err) != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("list Cilium's network policies of namespace %s: %w", tenant, err)
		}
		for i := range cilium.Items {
			if policy := &cilium.Items[i]; policy.Labels[kibashipv1.LabelAllowed] == "" {
				open = append(open, policy.Name)
			}
		}
	}
	return openingsProblem(tenant, open), nil
}

// opens reports whether a policy lets something through, and has not the label of an administrator's.
func opens(policy *networkingv1.NetworkPolicy) bool {
	if policy.Labels[kibashipv1.LabelAllowed] != "" {
		return false
	}
	types := policy.Spec.PolicyTypes
	return slices.Contains(types, networkingv1.PolicyTypeIngress) && len(policy.Spec.Ingress) > 0 ||
		slices.Contains(types, networkingv1.PolicyTypeEgress) && len(policy.Spec.Egress) > 0
}

func openingsProblem(tenant string, open []string) *outcome.Problem {
	if len(open) == 0 {
		return nil
	}
	return exceeds(kibashipv1.ReasonPoliciesExceedBounds, fmt.Sprintf("Network policies of namespace %s, which are not the Project's, let more through than its networkPolicy: %s. "+
		"Delete them, or let an administrator label those that are wanted %s=true", tenant, conditions.Enumerate(slices.Sorted(slices.Values(open))), kibashipv1.LabelAllowed))
}

func boundsProblem(tenant string, wider []string) *outcome.Problem {
	if len(wider) == 0 {
		return nil
	}
	return exceeds(kibashipv1.ReasonRightsExceedBounds, fmt.Sprintf("RoleBindings of namespace %s give accounts of Projects more rights than the bounds of the Project leave: %s. "+
		"They are older than the bounds, which those accounts can take off. Delete the RoleBindings, or let them bind a Role with fewer rights", tenant, conditions.Enumerate(slices.Sorted(slices.Values(wider)))))
}

func exceeds(reason, message string) *outcome.Problem {
	return &outcome.Problem{Condition: kibashipv1.ConditionLimitsReady, Reason: reason, Class: outcome.External, Message: message, Err: errors.New(message)}
}
