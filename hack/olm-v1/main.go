// Olm-v1 writes the files that install each package with OLM v1, from its bundle: the namespace, an account with the rights that OLM v1
// needs to install exactly this bundle, the ClusterCatalog and the ClusterExtension.
//
//	go run ./hack/olm-v1
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func main() {
	files, err := generate(".")
	for path, text := range files {
		if err == nil {
			err = os.WriteFile(path, text, 0o644) //nolint:gosec // a file of the repository
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "olm-v1:", err)
		os.Exit(1)
	}
}

// generate returns the file of each package by its path below root.
func generate(root string) (map[string][]byte, error) {
	folders, err := filepath.Glob(filepath.Join(root, "deploy", "packages", "*", "bundle"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, folder := range append(folders, filepath.Join(root, "bundle")) {
		b, err := readBundle(filepath.Join(folder, "manifests"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		if files[filepath.Join(root, "config", "olm", "v1", b.name()+".yaml")], err = b.file(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// bundle is what OLM v1 installs.
type bundle struct {
	csv operatorsv1alpha1.ClusterServiceVersion
	// objects are the others of the bundle.
	objects []unstructured.Unstructured
	// own are the rules of its Roles.
	own []rbacv1.PolicyRule
}

func readBundle(folder string) (b bundle, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		return b, fmt.Errorf("no manifests: %w", fs.ErrNotExist)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return b, err
		}
		var o unstructured.Unstructured
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return b, fmt.Errorf("%s: %w", file, err)
		}
		switch o.GetKind() {
		case operatorsv1alpha1.ClusterServiceVersionKind:
			err = yaml.Unmarshal(text, &b.csv)
		case "Role":
			var role rbacv1.Role
			err = yaml.Unmarshal(text, &role)
			b.own = append(b.own, role.Rules...)
			fallthrough
		default:
			b.objects = append(b.objects, o)
		}
		if err != nil {
			return b, fmt.Errorf("%s: %w", file, err)
		}
	}
	return b, nil
}

func (b bundle) name() string {
	name, _, _ := strings.Cut(b.csv.Name, ".v")
	return name
}

var (
	find   = []string{"create", "list", "watch"}
	manage = []string{"delete", "get", "patch", "update"}
)

// manageRules returns the rules to install objects of one resource with these names. RBAC cannot name what is created.
func manageRules(group, resource string, names ...string) []rbacv1.PolicyRule {
	slices.Sort(names)
	rule := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}}
	created, managed := rule, rule
	created.Verbs, managed.Verbs, managed.ResourceNames = find, manage, slices.Compact(names)
	return []rbacv1.PolicyRule{created, managed}
}

// rules returns the rights of the account that installs the bundle: in the cluster, and in its namespace. It may grant what the bundle's
// accounts get because it has the same rights, so that it needs neither escalate nor bind.
func (b bundle) rules() (cluster, namespaced []rbacv1.PolicyRule) {
	install := b.csv.Spec.InstallStrategy.StrategySpec
	names := map[string][]string{}
	for _, o := range b.objects {
		names[o.GetKind()] = append(names[o.GetKind()], o.GetName())
	}
	var accounts, deployments []string
	for _, d := range install.DeploymentSpecs {
		deployments = append(deployments, d.Name)
		accounts = append(accounts, d.Spec.Template.Spec.ServiceAccountName)
	}
	cluster = append(cluster, manageRules("apiextensions.k8s.io", "customresourcedefinitions", names["CustomResourceDefinition"]...)...)
	cluster = append(cluster, manageRules("scheduling.k8s.io", "priorityclasses", names["PriorityClass"]...)...)
	// OLM v1 names the roles of accounts by a hash.
	cluster = append(cluster, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles", "clusterrolebindings"}, Verbs: slices.Concat(find, manage)},
		rbacv1.PolicyRule{APIGroups: []string{"olm.operatorframework.io"}, Resources: []string{"clusterextensions/finalizers"}, ResourceNames: []string{b.name()}, Verbs: []string{"update"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch"}})
	if len(b.csv.Spec.WebhookDefinitions) > 0 {
		var webhooks []string
		for _, w := range b.csv.Spec.WebhookDefinitions {
			webhooks = append(webhooks, strings.TrimSuffix(w.GenerateName, "-"))
			names["Service"] = append(names["Service"], w.DeploymentName+"-service") // which OLM v1 makes
		}
		cluster = append(cluster, manageRules("admissionregistration.k8s.io", "validatingwebhookconfigurations", webhooks...)...)
		namespaced = append(namespaced, rbacv1.PolicyRule{APIGroups: []string{"cert-manager.io"}, Resources: []string{"certificates", "issuers"}, Verbs: slices.Concat(find, manage)})
	}
	for _, p := range slices.Concat(install.ClusterPermissions, install.Permissions) {
		cluster = append(cluster, p.Rules...)
	}
	for _, role := range b.objects {
		if role.GetKind() == "ClusterRole" {
			var r rbacv1.ClusterRole
			if text, err := yaml.Marshal(role.Object); err == nil && yaml.Unmarshal(text, &r) == nil {
				cluster = append(cluster, r.Rules...)
			}
		}
	}
	namespaced = append(namespaced, b.own...)
	namespaced = append(namespaced, manageRules("apps", "deployments", deployments...)...)
	namespaced = append(namespaced, manageRules("", "serviceaccounts", accounts...)...)
	for _, kind := range []struct{ kind, group, resource string }{
		{"Service", "", "services"},
		{"NetworkPolicy", "networking.k8s.io", "networkpolicies"},
		{"PodDisruptionBudget", "policy", "poddisruptionbudgets"},
		{"Role", rbacv1.GroupName, "roles"},
		{"ConfigMap", "", "configmaps"},
	} {
		if len(names[kind.kind]) > 0 {
			namespaced = append(namespaced, manageRules(kind.group, kind.resource, names[kind.kind]...)...)
		}
	}
	return merge(cluster), merge(namespaced)
}

// merge joins rules that differ in their verbs only, and drops repetitions.
func merge(rules []rbacv1.PolicyRule) (merged []rbacv1.PolicyRule) {
	for _, r := range rules {
		key := func(r rbacv1.PolicyRule) string {
			return fmt.Sprint(r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs)
		}
		index := slices.IndexFunc(merged, func(m rbacv1.PolicyRule) bool { return key(m) == key(r) })
		if index < 0 {
			r.Verbs = slices.Clone(r.Verbs)
			merged, index = append(merged, r), len(merged)
		} else {
			merged[index].Verbs = append(merged[index].Verbs, r.Verbs...)
		}
		slices.Sort(merged[index].Verbs)
		merged[index].Verbs = slices.Compact(merged[index].Verbs)
	}
	return merged
}

type object = map[string]any

// file returns the objects that an administrator applies.
func (b bundle) file() ([]byte, error) {
	name, namespace := b.name(), b.name()+"-system"
	account := name + "-olm" // not the name of an account of the bundle
	cluster, namespaced := b.rules()
	labels := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/component": "olm-account"}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}}
	everywhere, inNamespace := metav1.ObjectMeta{Name: account, Labels: labels}, metav1.ObjectMeta{Name: account, Namespace: namespace, Labels: labels}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	objects := []any{
		object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace, "labels": object{"pod-security.kubernetes.io/warn": "restricted"}}},
		object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": account, "namespace": namespace, "labels": labels}},
		rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: everywhere, Rules: cluster},
		rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: everywhere, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account}, Subjects: subjects},
		rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: inNamespace, Rules: namespaced},
		rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: inNamespace, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account}, Subjects: subjects},
		object{
			"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": object{"name": "berg-operator"},
			"spec": object{"source": object{"type": "Image", "image": object{"ref": "ghcr.io/bergctf/berg-operator-catalog:v" + b.csv.Spec.Version.String()}}},
		},
		object{
			"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": object{"name": name},
			"spec": object{
				"namespace": namespace, "serviceAccount": object{"name": account},
				"source": object{"sourceType": "Catalog", "catalog": object{"packageName": name, "channels": []string{"stable"}}},
			},
		},
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Generated by hack/olm-v1 from the bundle. All objects to install %s with OLM v1: docs/olm-v1.md.\n", name)
	for i, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(bytes.ReplaceAll(text, []byte("  creationTimestamp: null\n"), nil))
	}
	return out.Bytes(), nil
}
