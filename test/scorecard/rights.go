package main

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Everything that the operator may do. What is granted beyond it, or no longer
// granted, is a decision that somebody takes here.
var allowed = map[string][]string{
	// The objects of an instance.
	"cluster: configmaps":                           own,
	"cluster: namespaces":                           own,
	"cluster: services":                             own,
	"cluster: deployments.apps":                     own,
	"cluster: poddisruptionbudgets.policy":          own,
	"cluster: networkpolicies.networking.k8s.io":    own,
	"cluster: ciliumnetworkpolicies.cilium.io":      own,
	"cluster: httproutes.gateway.networking.k8s.io": own,
	"cluster: tlsroutes.gateway.networking.k8s.io":  own,
	"cluster: secrets":                              {"create"}, // the copy of the pull secret
	"cluster: pods":                                 see,
	// The binding of an environment, to the one role that the operator may bind.
	"cluster: rolebindings.rbac.authorization.k8s.io":                            own,
	"cluster: clusterroles.rbac.authorization.k8s.io":                            see,
	"cluster: clusterroles.rbac.authorization.k8s.io/quix-platform-account-role": {"bind"},
	// Our kinds.
	"cluster: challenges.berg.norelect.ch":                see,
	"cluster: challengeinstances.berg.norelect.ch":        {"delete", "list", "patch", "watch"},
	"cluster: challengeinstances/status.berg.norelect.ch": {"patch"},
	"cluster: environments.quix.io":                       {"list", "patch", "watch"},
	"cluster: environments/status.quix.io":                {"patch"},
	"cluster: environments/finalizers.quix.io":            {"update"}, // to own a namespace
	// Whether optional APIs are there.
	"cluster: customresourcedefinitions.apiextensions.k8s.io": see,
	// What happens to instances is told; why a node refuses a pod stands in events alone.
	"cluster: events.events.k8s.io": {"create", "list", "patch", "watch"},
	// Who may read the metrics.
	"cluster: tokenreviews.authentication.k8s.io":        {"create"},
	"cluster: subjectaccessreviews.authorization.k8s.io": {"create"},
	// In the operator's own namespace.
	"namespace: leases.coordination.k8s.io":                                {"create"},
	"namespace: leases.coordination.k8s.io/berg-operator.berg.norelect.ch": {"get", "update"},
	"namespace: secrets":     {"get"},   // the pull secret
	"namespace: pods":        {"get"},   // the check of isolation looks at the operator itself
	"namespace: pods/status": {"patch"}, // what the check of isolation found
}

var (
	own = []string{"create", "delete", "get", "list", "update", "watch"}
	see = []string{"list", "watch"}
)

// allowedRights: the bundle grants what is allowed, no more and no less.
func allowedRights(b bundle) []string {
	granted := map[string][]string{}
	grant := func(scope string, all []permissions) {
		for _, p := range all {
			for _, rule := range p.Rules {
				for _, right := range resources(rule) {
					key := scope + ": " + right
					granted[key] = append(granted[key], rule.Verbs...)
				}
			}
		}
	}
	install := b.csv.Spec.Install.Spec
	grant("namespace", install.Permissions)
	grant("cluster", install.ClusterPermissions)

	var problems []string
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
