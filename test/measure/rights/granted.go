package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// account is the name of the operator's ServiceAccount in config/rbac, as bindings name it;
// those that are applied on their own name it as config/default does, with its prefix.
const account = "controller-manager"

// grants are the rights of the operator. Own ones hold in its namespace only, one
// without a name for all objects.
type grants map[use]bool

// ownNamespaces are the names of the operator's namespace: as config/rbac has it, before and after
// config/default has named it.
var ownNamespaces = []string{"", "system", "berg-operator-system"}

// usual are the files of the rights that every operator has, below config: those of the
// operator in its folder rbac, and those of each family in the folder rbac of its own.
var usual = []string{"rbac/*.yaml", "*/rbac/*.yaml"}

// onRequest are those of rights that are only bound where they are wanted.
var onRequest = []string{"*/*/rbac/*.yaml", "*/*/rights/*.yaml"}

// readGrants reads what the bindings in some files below a folder give the operator.
func readGrants(folder string, patterns []string) (grants, error) {
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(folder, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	rules := map[string][]rbacv1.PolicyRule{} // by kind and name
	elsewhere := map[string]bool{}            // Roles of other namespaces than the operator's
	var bound []string
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for document := range strings.SplitSeq(string(raw), "\n---\n") {
			var object struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`

				Rules    []rbacv1.PolicyRule `json:"rules"`
				Subjects []rbacv1.Subject    `json:"subjects"`
				RoleRef  rbacv1.RoleRef      `json:"roleRef"`
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			switch object.Kind {
			case "Role", "ClusterRole":
				rules[object.Kind+" "+object.Name] = object.Rules
				elsewhere[object.Kind+" "+object.Name] = object.Kind == "Role" && !slices.Contains(ownNamespaces, object.Namespace)
			case "RoleBinding", "ClusterRoleBinding":
				if slices.ContainsFunc(object.Subjects, func(s rbacv1.Subject) bool { return strings.TrimPrefix(s.Name, "berg-operator-") == account }) {
					bound = append(bound, object.RoleRef.Kind+" "+object.RoleRef.Name)
				}
			}
		}
	}
	all := grants{}
	for _, role := range bound {
		if rules[role] == nil {
			return nil, fmt.Errorf("%s is bound to the operator and not in %s", role, folder)
		}
		for _, rule := range rules[role] {
			all.add(rule, strings.HasPrefix(role, "Role ") && !elsewhere[role])
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing in %s is bound to %s", folder, account)
	}
	return all, nil
}

func (g grants) add(rule rbacv1.PolicyRule, own bool) {
	only := rule.ResourceNames
	if len(only) == 0 {
		only = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				for _, name := range only {
					g[use{Verb: verb, Group: group, Resource: resource, Name: name, Own: own}] = true
				}
			}
		}
	}
}

// covering returns the narrowest grant that covers a use.
func (g grants) covering(used use) (use, bool) {
	for {
		switch {
		case g[used]:
			return used, true
		case used.Name != "":
			used.Name = ""
		case used.Own:
			used.Own = false
		default:
			return use{}, false
		}
	}
}

// unseen are rights that no request of their own shows.
var unseen = []use{
	// Looked at when a RoleBinding is written.
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "quix-platform-account-role"},
	// Looked at when a namespace gets its owner, where OwnerReferencesPermissionEnforcement is on.
	{Verb: "update", Group: "quix.io", Resource: "environments/finalizers"},
	// The same for what a challenge owns.
	{Verb: "update", Group: "apps.hexactf.io", Resource: "challenges/finalizers"},
	// As for an environment: the bindings and the owner of a Project's namespace.
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "kibaship-project-admin"},
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "kibaship-tekton-integration"},
	{Verb: "update", Group: "platform.operator.kibaship.com", Resource: "projects/finalizers"},
	{Verb: "update", Group: "platform.operator.kibaship.com", Resource: "deployments/finalizers"},
	// As for a challenge; and the binding to itself in the namespace of a network.
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "berg-operator-tunnel-network"},
	{Verb: "update", Group: "usvc-dev.developer.microsoft.com", Resource: "containernetworks/finalizers"},
	{Verb: "update", Group: "usvc-dev.developer.microsoft.com", Resource: "containernetworktunnelproxies/finalizers"},
	// Looked at when the operator binds it to itself, to read logs and to notify pods.
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "berg-operator-berg-record-logs"},
	{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "berg-operator-berg-warm-pods"},
	// Looked at by the policy of config/fence when a pod of the operator is created.
	{Verb: "use", Group: "scheduling.k8s.io", Resource: "priorityclasses", Name: "berg-operator-controller-manager", Own: true},
}

// byOLM is the group of what OLM grants the operators that it installs.
const byOLM = "operators.coreos.com"

// compare returns what is granted and unused, or used and not granted.
func compare(granted grants, used usage) []string {
	var problems []string
	exercised := map[use]bool{}
	for r := range used {
		by, covered := granted.covering(r.use)
		switch {
		case covered && !r.Forbidden:
			exercised[by] = true
		case covered: // a test has taken it away for a while
		case r.Group == byOLM:
		case r.Forbidden:
			problems = append(problems, "needed, and not granted: "+r.String())
		default:
			problems = append(problems, "used, and granted by something else than config: "+r.String())
		}
	}
	for right := range granted {
		// An informer lists where the API server cannot begin a watch with what there is.
		if watch := right; right.Verb == "list" {
			watch.Verb = "watch"
			exercised[right] = exercised[right] || exercised[watch]
		}
		if !exercised[right] && !slices.Contains(unseen, right) {
			problems = append(problems, "granted, and never used: "+right.String())
		}
	}
	slices.Sort(problems)
	return problems
}
