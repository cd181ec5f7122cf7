package project

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// observeExtra reads the ClusterRoles whose rules an administrator adds to the rules of bounded Projects. refused are the names
// of ClusterRoles that would let an account remove its bounds. The order of the names keeps the Role the same from one
// reconciliation to the next.
func (r *Reconciler) observeExtra(ctx context.Context) (rules []rbacv1.PolicyRule, refused []string, err error) {
	var roles rbacv1.ClusterRoleList
	if err := r.Client.List(ctx, &roles, client.MatchingLabels{kibashipv1.LabelAggregate: "true"}, client.DisableReadYourWritesConsistency); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(roles.Items, func(a, b rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	for _, role := range roles.Items {
		if slices.ContainsFunc(role.Rules, takesBoundsOff) {
			refused = append(refused, role.Name)
			continue
		}
		rules = append(rules, role.Rules...)
	}
	return rules, refused, nil
}

// guarded are the resources of a Project's bounds, and the resources with which a Service leads anywhere.
var guarded = []string{
	"endpoints", "endpointslices", "limitranges", "namespaces", "networkpolicies", "resourcequotas", "ciliumnetworkpolicies",
}

// takesBoundsOff reports whether a rule lets an account change its own bounds, or gain rights. Every unknown verb counts as a
// write.
func takesBoundsOff(rule rbacv1.PolicyRule) bool {
	readVerbs := []string{"get", "list", "watch"}
	writes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains(readVerbs, verb) })
	for _, verb := range rule.Verbs {
		if slices.Contains([]string{"bind", "escalate", "impersonate", rbacv1.VerbAll}, verb) {
			return true
		}
	}
	if len(rule.NonResourceURLs) > 0 || slices.Contains(rule.APIGroups, rbacv1.APIGroupAll) {
		return true
	}
	return slices.ContainsFunc(rule.Resources, func(resource string) bool {
		parent, _, _ := strings.Cut(resource, "/")
		ofKubernetes := slices.Contains(rule.APIGroups, "") || slices.Contains(rule.APIGroups, kibashipv1.GroupVersion.Group)
		return resource == rbacv1.ResourceAll || writes && (slices.Contains(guarded, parent) ||
			ofKubernetes && (parent == rbacv1.ResourceAll || strings.HasSuffix(resource, "/status")))
	})
}
