package main

import (
	"fmt"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// allowed is everything that the operator may do, by API group: rights_<family>.go says it for a family, this
// file for the process. What is granted beyond it, or no longer granted, is a decision that
// a person makes there.
var allowed = map[string]map[string][]string{}

// allow adds rights, verbs by resource, to those that are allowed with an API group; process is for all.
func allow(api string, more map[string][]string) bool {
	allowed[api] = more
	return true
}

// allowed returns what the operator of the bundle may do.
func (b bundle) allowed() map[string][]string {
	all := map[string][]string{
		"namespace: leases.coordination.k8s.io/" + b.lease(): {"get", "update"},
		// Its pods have its PriorityClass, which other pods may not.
		"namespace: priorityclasses.scheduling.k8s.io/" + b.account(): {"use"},
		// The installer owns the policies by the first, and binds the Role of the operator's own namespace by the others.
		"cluster: priorityclasses.scheduling.k8s.io/" + b.account():        {"get"},
		"namespace: roles.rbac.authorization.k8s.io/" + b.account():        {"bind", "list", "watch"},
		"namespace: rolebindings.rbac.authorization.k8s.io/" + b.account(): {"list", "patch", "watch"},
	}
	for _, policy := range []string{"fence", "fence-deletions", "own-namespace", "kibaship-tenants", "kibaship-confined-pods", "tunnel-confined-pods"} {
		for _, kind := range []string{"policies", "policybindings"} {
			all["cluster: validatingadmission"+kind+".admissionregistration.k8s.io/berg-operator-"+policy] = []string{"list", "patch", "watch"}
		}
	}
	for _, api := range []string{process, b.api()} {
		for resource, verbs := range allowed[api] {
			verbs = slices.Concat(all[resource], verbs)
			slices.Sort(verbs)
			all[resource] = slices.Compact(verbs)
		}
	}
	return all
}

// process is for the rights that the operator needs with every API group.
const process = ""

var _ = allow(process, map[string][]string{
	// What happens is told.
	"cluster: events.events.k8s.io": {"create", "patch"},
	// Who may read the metrics.
	"cluster: tokenreviews.authentication.k8s.io":        {"create"},
	"cluster: subjectaccessreviews.authorization.k8s.io": {"create"},
	// In the operator's own namespace.
	"namespace: leases.coordination.k8s.io":             {"create"},
	"namespace: configmaps/berg-operator-settings":      {"get", "list", "watch"},
	"namespace: rolebindings.rbac.authorization.k8s.io": {"create"},
	// The installer's. RBAC cannot restrict the creation of an object to a name.
	"cluster: validatingadmissionpolicies.admissionregistration.k8s.io":       {"create"},
	"cluster: validatingadmissionpolicybindings.admissionregistration.k8s.io": {"create"},
})

var (
	own = []string{"create", "delete", "get", "list", "update", "watch"}
	see = []string{"list", "watch"}
)

// allowedRights: the bundle grants what is allowed, no more and no less.
func allowedRights(b bundle) []string {
	granted := map[string][]string{}
	grant := func(scope string, all []operatorsv1alpha1.StrategyDeploymentPermissions) {
		for _, p := range all {
			for _, rule := range p.Rules {
				for _, right := range resources(rule) {
					key := scope + ": " + right
					granted[key] = append(granted[key], rule.Verbs...)
				}
			}
		}
	}
	install := b.csv.Spec.InstallStrategy.StrategySpec
	grant("namespace", append(slices.Clone(install.Permissions), operatorsv1alpha1.StrategyDeploymentPermissions{Rules: b.own}))
	grant("cluster", install.ClusterPermissions)

	var problems []string
	allowed := b.allowed()
	for right, verbs := range granted {
		slices.Sort(verbs)
		verbs = slices.Compact(verbs)
		if want := allowed[right]; !slices.Equal(verbs, want) {
			problems = append(problems, fmt.Sprintf("%s: the bundle grants %q, allowed is %q", right, verbs, want))
		}
	}
	for right, verbs := range allowed {
		if _, ok := granted[right]; !ok {
			problems = append(problems, fmt.Sprintf("%s: the bundle does not grant %q any more: allow it no longer", right, verbs))
		}
	}
	slices.Sort(problems)
	return problems
}

// resources names what a rule is about, as resource[.group][/name].
func resources(rule rbacv1.PolicyRule) []string {
	all := slices.Clone(rule.NonResourceURLs)
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			full := strings.TrimSuffix(resource+"."+group, ".")
			if len(rule.ResourceNames) == 0 {
				all = append(all, full)
			}
			for _, name := range rule.ResourceNames {
				all = append(all, full+"/"+name)
			}
		}
	}
	return all
}
