package environment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// ErrSecurityViolation is wrapped by every error about a ClusterRole that would let the platform gain rights beyond the
// listed ones.
var ErrSecurityViolation = errors.New("security violation")

// danger is a combination of rights with which their holder can gain more. A rule has it when it has any of the groups,
// any of the resources and any of the verbs, each by its name or by "*".
type danger struct {
	description              string
	groups, resources, verbs []string
}

var (
	rbacGroup = []string{rbacv1.GroupName}
	coreGroup = []string{""}
	// writes are the verbs that change objects. A deletecollection removes the bindings of others.
	writes = []string{"create", "update", "patch", "delete", "deletecollection"}
)

// dangers also lists rights that have an effect only in a cluster-wide binding, although the operator binds the role in a
// namespace: another binding of the same role is easily made.
var dangers = []danger{
	{"change role bindings", rbacGroup, []string{"rolebindings", "clusterrolebindings"}, writes},
	{"change roles", rbacGroup, []string{"roles", "clusterroles"}, writes},
	{"bind or escalate roles", rbacGroup, []string{"roles", "clusterroles", "rolebindings", "clusterrolebindings"}, []string{"bind", "escalate"}},
	{"impersonate others", coreGroup, []string{"users", "groups", "serviceaccounts"}, []string{"impersonate"}},
	{"impersonate others", []string{"authentication.k8s.io"}, []string{"users", "groups", "serviceaccounts", "nodes", "uids", "userextras", "userextras/*"}, []string{"impersonate"}},
	{"create tokens of service accounts", coreGroup, []string{"serviceaccounts/token"}, []string{"create"}},
}

// validateClusterRole returns nil for a role that grants the rights it lists and no way to gain more. Each rule is
// checked separately, and its resourceNames do not count. The error wraps ErrSecurityViolation and names every
// refused rule. A role that is fine now may change: the watch of ClusterRoles brings each change here.
func validateClusterRole(role *rbacv1.ClusterRole) error {
	var problems []string
	for key := range role.Labels {
		if strings.HasPrefix(key, "rbac.authorization.k8s.io/aggregate-to-") {
			problems = append(problems, fmt.Sprintf("the label %s adds its rules to another ClusterRole", key))
		}
	}
	slices.Sort(problems)
	if role.AggregationRule != nil {
		problems = append(problems, "its aggregationRule copies the rules of other ClusterRoles, which can change without a change of this one")
	}
	for i, granted := range role.Rules {
		var found []string
		for _, d := range dangers {
			if d.in(granted) && !slices.Contains(found, d.description) {
				found = append(found, d.description)
			}
		}
		if constrainedImpersonation(granted) && !slices.Contains(found, "impersonate others") {
			found = append(found, "impersonate others")
		}
		if len(found) > 0 {
			problems = append(problems, fmt.Sprintf("rules[%d] allows to %s", i, strings.Join(found, ", ")))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: ClusterRole %s must not be bound: %s", ErrSecurityViolation, role.Name, strings.Join(problems, "; "))
}

func (d danger) in(rule rbacv1.PolicyRule) bool {
	return includes(rule.APIGroups, d.groups) && includesResource(rule.Resources, d.resources) && includes(rule.Verbs, d.verbs)
}

func includes(list, words []string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == rbacv1.VerbAll || slices.Contains(words, s) })
}

// includesResource follows RBAC: "*" is every resource and subresource, and "*/token" the subresource token of every
// resource. "parent/*" in wanted is any subresource of parent.
func includesResource(list, wanted []string) bool {
	return includes(list, wanted) || slices.ContainsFunc(list, func(s string) bool {
		parent, sub, _ := strings.Cut(s, "/")
		return slices.ContainsFunc(wanted, func(w string) bool {
			wantedParent, wantedSub, isSub := strings.Cut(w, "/")
			return isSub && sub != "" && (parent == "*" || parent == wantedParent) && (wantedSub == "*" || wantedSub == sub)
		})
	})
}

// constrainedImpersonation finds the verbs impersonate:<mode> and
// impersonate-on:<mode>:<verb> of Kubernetes 1.35 and later (KEP-5284). The
// latter applies to any resource.
func constrainedImpersonation(rule rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(rule.Verbs, func(verb string) bool {
		return strings.HasPrefix(verb, "impersonate:") || strings.HasPrefix(verb, "impersonate-on:")
	})
}
