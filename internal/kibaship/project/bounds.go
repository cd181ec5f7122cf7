package project

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// checkBounds reports bindings in the namespace that grant more than the bounds of a Project leave. Accounts of the Project
// can create none, but could before it had bounds. The operator did not create them and does not delete them.
func (r *Reconciler) checkBounds(ctx context.Context, p *kibashipv1.Project, in Inputs) (*outcome.Problem, error) {
	if !bounded(p.Spec) {
		return nil, nil
	}
	where := naming.Namespace(p.Name)
	var bindings rbacv1.RoleBindingList
	if err := r.Writer.Live.List(ctx, &bindings, client.InNamespace(where)); err != nil {
		return nil, fmt.Errorf("list the role bindings of namespace %s: %w", where, err)
	}
	var wider []string
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if ownerOf(p).Owns(b) || !ofTenants(b, where) {
			continue
		}
		rules, err := r.rulesOf(ctx, b)
		if err != nil {
			return nil, err
		}
		if covered, _ := validation.Covers(adminRole(in).Rules, rules); !covered {
			wider = append(wider, b.Name)
		}
	}
	return boundsProblem(where, wider), nil
}

// ofTenants reports whether a binding is for accounts of the namespace. Those for others are an administrator's.
func ofTenants(b *rbacv1.RoleBinding, where string) bool {
	return slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
		if s.Kind == rbacv1.ServiceAccountKind {
			return s.Namespace == where
		}
		return s.Name == "system:serviceaccounts:"+where || strings.HasPrefix(s.Name, "system:serviceaccount:"+where+":") ||
			slices.Contains([]string{"system:serviceaccounts", "system:authenticated", "system:unauthenticated"}, s.Name)
	})
}

// rulesOf returns what a binding grants; nothing where its role does not exist.
func (r *Reconciler) rulesOf(ctx context.Context, b *rbacv1.RoleBinding) ([]rbacv1.PolicyRule, error) {
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

// maxNamed is how many bindings a message names.
const maxNamed = 5

func boundsProblem(where string, wider []string) *outcome.Problem {
	if len(wider) == 0 {
		return nil
	}
	slices.Sort(wider)
	named := strings.Join(wider[:min(len(wider), maxNamed)], ", ")
	if more := len(wider) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	message := fmt.Sprintf("RoleBindings of namespace %s give its accounts more rights than the bounds of the Project leave: %s. "+
		"They are older than the bounds, which those accounts can take off. Delete the RoleBindings, or let them bind a Role with fewer rights", where, named)
	return &outcome.Problem{
		Condition: kibashipv1.ConditionLimitsReady, Reason: kibashipv1.ReasonRightsExceedBounds, Class: outcome.External,
		Message: message, Err: errors.New(message),
	}
}
