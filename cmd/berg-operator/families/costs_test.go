package families_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// main is the file of the operator with its first family; each other family is a file of its own.
const (
	mainFile   = "install.yaml"
	mainFamily = "berg"
	// maxObjects is how many objects an installation of the main family may have.
	maxObjects = 29
)

// cost is what a file installs.
type cost struct{ objects, definitions, roles, cluster, own int }

// The page shows what each family costs; run with -update to write it.
func TestPageShowsTheCosts(t *testing.T) {
	var table strings.Builder
	table.WriteString("| | objects | CRDs | ClusterRoles | rights in the cluster | rights in its namespace |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: |\n")
	row := func(name string, c cost) {
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %d |\n", name, c.objects, c.definitions, c.roles, c.cluster, c.own)
	}
	folders, err := filepath.Glob("../../../config/*/settings.yaml")
	if err != nil || len(folders) < 2 {
		t.Fatalf("families are %q: %v", folders, err)
	}
	first := costOf(t, mainFile)
	row("the operator and `"+mainFamily+"`", first)
	if first.objects > maxObjects {
		t.Errorf("%s has %d objects, at most %d are wanted: put what few need into a folder of its own", mainFile, first.objects, maxObjects)
	}
	for _, folder := range folders {
		if name := filepath.Base(filepath.Dir(folder)); name != mainFamily {
			row("`"+name+"`", costOf(t, name+".yaml"))
		}
	}
	shows(t, "docs/operations.md", "costs", table.String())
}

// costOf counts the objects of a file in deploy/, and the rights that its bindings give the operator's account.
func costOf(t *testing.T, file string) (c cost) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	rights := map[string]map[string]bool{} // by the kind and name of a role
	var bound []string
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var object struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`

			Rules    []rbacv1.PolicyRule `json:"rules"`
			Subjects []rbacv1.Subject    `json:"subjects"`
			RoleRef  rbacv1.RoleRef      `json:"roleRef"`
		}
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		switch object.Kind {
		case "":
			continue
		case "CustomResourceDefinition":
			c.definitions++
		case "ClusterRole", "Role":
			rights[object.Kind+" "+object.Name] = rightsOf(object.Rules)
			if object.Kind == "ClusterRole" {
				c.roles++
			}
		case "ClusterRoleBinding", "RoleBinding":
			if slices.ContainsFunc(object.Subjects, func(s rbacv1.Subject) bool { return s.Name == "berg-operator-controller-manager" }) {
				bound = append(bound, object.Kind+" "+object.RoleRef.Kind+" "+object.RoleRef.Name)
			}
		}
		c.objects++
	}
	if len(bound) == 0 {
		t.Fatalf("%s binds no role to the operator", file)
	}
	cluster, own := map[string]bool{}, map[string]bool{}
	for _, binding := range bound {
		kind, role, _ := strings.Cut(binding, " ")
		if rights[role] == nil {
			t.Fatalf("%s binds %s, which it does not have", file, role)
		}
		to := map[bool]map[string]bool{true: cluster, false: own}[kind == "ClusterRoleBinding"]
		for right := range rights[role] {
			to[right] = true
		}
	}
	c.cluster, c.own = len(cluster), len(own)
	return c
}

// rightsOf lists each verb for each resource, or for the named ones of them.
func rightsOf(rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all[fmt.Sprint(group, resource, rule.ResourceNames, verb)] = true
				}
			}
		}
	}
	return all
}
