package main

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

func TestMissingBundleIsAnError(t *testing.T) {
	results := checkBundle(t.TempDir()).Results
	if len(results) != 1 || results[0].State != v1alpha3.ErrorState || len(results[0].Errors) != 1 {
		t.Errorf("got %+v", results)
	}
}

// Its check, and no other, must find each problem. A right that is not minimal is not among the allowed ones either.
func TestChecksFindFaults(t *testing.T) {
	container := func(b *bundle) *corev1.Container { return &b.manager.Spec.Containers[0] }
	grant := func(b *bundle, rule rbacv1.PolicyRule) {
		permissions := &b.csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions[0]
		permissions.Rules = append(permissions.Rules, rule)
	}
	variable := func(b *bundle, name string) int {
		return slices.IndexFunc(container(b).Env, func(v corev1.EnvVar) bool { return v.Name == name })
	}
	for _, test := range []struct {
		problem string
		check   string
		says    string
		make    func(*bundle)
		pack    string // the package; empty: berg-operator
	}{
		{"a variable is missing", "variables-are-complete", "CHALLENGE_NAMESPACE", func(b *bundle) {
			index := variable(b, "CHALLENGE_NAMESPACE")
			container(b).Env = slices.Delete(container(b).Env, index, index+1)
		}, ""},
		{"a default differs", "variables-are-complete", "CHALLENGE_NAMESPACE", func(b *bundle) {
			container(b).Env[variable(b, "CHALLENGE_NAMESPACE")].Value = "elsewhere"
		}, ""},
		{"a variable is unknown", "variables-are-complete", "NOT_READ", func(b *bundle) {
			container(b).Env = append(container(b).Env, corev1.EnvVar{Name: "NOT_READ"})
		}, ""},
		{"the order differs", "variables-are-complete", "order", func(b *bundle) {
			env := container(b).Env
			env[0], env[1] = env[1], env[0]
		}, ""},
		{"there are arguments", "variables-are-complete", "--leader-elect", func(b *bundle) {
			container(b).Args = []string{"--leader-elect"}
		}, ""},
		{"a verb is a wildcard", "rights-are-minimal", "wildcard", func(b *bundle) {
			grant(b, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"*"}})
		}, ""},
		{"all Secrets can be read", "rights-are-minimal", "list Secrets", func(b *bundle) {
			grant(b, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
		}, ""},
		{"any role can be bound", "rights-are-minimal", "RBAC itself", func(b *bundle) {
			grant(b, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, Verbs: []string{"bind"}})
		}, ""},
		{"another role can be bound", "rights-are-minimal", "RBAC itself", func(b *bundle) {
			grant(b, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"cluster-admin"}, Verbs: []string{"bind"}})
		}, ""},
		{"roles can be bound", "rights-are-minimal", "bind", func(b *bundle) {
			grant(b, rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"bind"}})
		}, ""},
		{"a right is not on the list", "rights-are-those-allowed", "ingresses.networking.k8s.io", func(b *bundle) {
			grant(b, rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses"}, Verbs: []string{"get"}})
		}, ""},
		{"a verb is not on the list", "rights-are-those-allowed", "pods", func(b *bundle) {
			grant(b, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"patch"}})
		}, ""},
		{"a right on the list is not granted", "rights-are-those-allowed", "any more", func(b *bundle) {
			permissions := &b.csv.Spec.InstallStrategy.StrategySpec.ClusterPermissions[0]
			permissions.Rules = permissions.Rules[1:]
		}, ""},
		{"the operator runs as root", "pod-is-restricted", "runAsUser", func(b *bundle) {
			b.manager.Spec.SecurityContext.RunAsUser = ptr.To(int64(0))
		}, ""},
		{"the root is writable", "pod-is-restricted", "writable", func(b *bundle) {
			container(b).SecurityContext.ReadOnlyRootFilesystem = nil
		}, ""},
		{"a capability stays", "pod-is-restricted", "capabilities", func(b *bundle) {
			container(b).SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		}, ""},
		{"no memory is requested", "pod-is-manageable", "memory", func(b *bundle) {
			delete(container(b).Resources.Requests, corev1.ResourceMemory)
		}, ""},
		{"the deadline is Kubernetes' own", "pod-is-manageable", "progressDeadlineSeconds", func(b *bundle) {
			b.deployment.Spec.ProgressDeadlineSeconds = nil
		}, ""},
		{"another image runs", "images-can-be-mirrored", "relatedImages", func(b *bundle) {
			container(b).Image = "example.com/another"
		}, ""},
		{"an example runs the newest image", "images-can-be-mirrored", "not pinned", func(b *bundle) {
			for _, e := range b.examples {
				if containers, _, _ := unstructured.NestedSlice(e.Object, "spec", "containers"); len(containers) > 0 {
					containers[0].(map[string]any)["image"] = "ghcr.io:443/example/web"
					_ = unstructured.SetNestedSlice(e.Object, containers, "spec", "containers")
					return
				}
			}
		}, ""},
		{"an example of components runs the newest image", "images-can-be-mirrored", "not pinned", func(b *bundle) {
			for _, e := range b.examples {
				for _, c := range componentContainers(e) {
					c["image"] = "ghcr.io:443/example/web"
				}
			}
		}, "hexactf-operator"},
		{"a test runs the newest image", "images-can-be-mirrored", "not pinned", func(b *bundle) {
			b.scorecardImages[0] = "example.com/test:latest"
		}, ""},
		{"a kind has no example", "kinds-have-examples", "ChallengeInstance", func(b *bundle) {
			b.examples = slices.DeleteFunc(b.examples, func(e unstructured.Unstructured) bool { return e.GetKind() == "ChallengeInstance" })
		}, ""},
		{"a descriptor is empty", "fields-are-described", "no name or no description", func(b *bundle) {
			for _, kind := range b.csv.Spec.CustomResourceDefinitions.Owned {
				if len(kind.StatusDescriptors) > 0 {
					kind.StatusDescriptors[0].Description = ""
				}
			}
		}, ""},
		{"a descriptor is of a field that is gone", "fields-are-described", "does not exist", func(b *bundle) {
			b.csv.Spec.CustomResourceDefinitions.Owned[0].SpecDescriptors[0].Path = "gone"
		}, ""},
		{"a Secret is a text", "fields-are-described", "gitRepository.secretRef.name does not say that it names a Secret", func(b *bundle) {
			for _, kind := range b.csv.Spec.CustomResourceDefinitions.Owned {
				for i, d := range kind.SpecDescriptors {
					if d.Path == "gitRepository.secretRef.name" {
						kind.SpecDescriptors[i].XDescriptors = nil
					}
				}
			}
		}, "kibaship-operator"},
		{"a nested field has no descriptor", "fields-are-described", "Challenge.spec.containers[0].ports[0].type", func(b *bundle) {
			for i, kind := range b.csv.Spec.CustomResourceDefinitions.Owned {
				b.csv.Spec.CustomResourceDefinitions.Owned[i].SpecDescriptors = slices.DeleteFunc(kind.SpecDescriptors,
					func(d operatorsv1alpha1.SpecDescriptor) bool { return d.Path == "containers[0].ports[0].type" })
			}
		}, ""},
		{"a field has no descriptor", "fields-are-described", "ownerId", func(b *bundle) {
			for i, kind := range b.csv.Spec.CustomResourceDefinitions.Owned {
				b.csv.Spec.CustomResourceDefinitions.Owned[i].SpecDescriptors = slices.DeleteFunc(kind.SpecDescriptors,
					func(d operatorsv1alpha1.SpecDescriptor) bool { return d.Path == "ownerId" })
			}
		}, ""},
	} {
		t.Run(test.problem, func(t *testing.T) {
			b := loadOurs(t, cmp.Or(test.pack, "berg-operator"))
			test.make(&b)
			for _, c := range checks {
				problems := c.problems(b)
				switch {
				case test.check == "rights-are-minimal" && c.name == "rights-are-those-allowed":
				case c.name != test.check && len(problems) > 0:
					t.Errorf("%s complains too: %q", c.name, problems)
				case c.name == test.check && !strings.Contains(strings.Join(problems, "\n"), test.says):
					t.Errorf("%s says %q, want something about %q", c.name, problems, test.says)
				}
			}
		})
	}
}
