package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// folders are those of the bundles of all packages, by the package.
func folders(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"berg-operator": filepath.Join(root, "bundle")}
	others, err := filepath.Glob(filepath.Join(root, "deploy", "packages", "*", "bundle"))
	if err != nil || len(others) != 4 {
		t.Fatalf("the other packages are %q: %v", others, err)
	}
	for _, folder := range others {
		all[filepath.Base(filepath.Dir(folder))] = folder
	}
	return all
}

func loadOurs(t *testing.T, name string) bundle {
	t.Helper()
	b, err := load(folders(t)[name])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOurBundlesPass(t *testing.T) {
	for name, folder := range folders(t) {
		for _, r := range checkBundle(folder).Results {
			if r.State != "pass" {
				t.Errorf("%s: %s: %s: %s", name, r.Name, r.State, strings.Join(r.Errors, "\n\t"))
			}
		}
	}
}

// The packages may be installed next to each other, also in one namespace: no two have an object, a lease or a selector in common.
func TestPackagesShareNothing(t *testing.T) {
	seen := map[string]string{}
	for name, folder := range folders(t) {
		b := loadOurs(t, name)
		if b.name() != name {
			t.Errorf("%s is of the package %s", folder, b.name())
		}
		claim := func(kind, what string) {
			if other, taken := seen[kind+" "+what]; taken {
				t.Errorf("%s and %s both have the %s %s", name, other, kind, what)
			}
			seen[kind+" "+what] = name
		}
		claim("API group", b.api())
		claim("lease", b.lease())
		var own []string // the names by which a package selects its pods
		for _, d := range b.csv.Spec.Install.Spec.Deployments {
			claim("Deployment", d.Name)
			claim("labels", fmt.Sprint(d.Spec.Selector.MatchLabels))
			claim("ServiceAccount", d.Spec.Template.Spec.ServiceAccountName)
			own = append(own, d.Spec.Selector.MatchLabels["app.kubernetes.io/name"])
		}
		claim("display name", b.csv.Spec.DisplayName)
		claim("icon", string(b.csv.Spec.Icon[0].Data))
		files, err := filepath.Glob(filepath.Join(folder, "manifests", "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var object struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct {
					Selector    map[string]any
					PodSelector map[string]any
				}
			}
			if err := yaml.Unmarshal(text, &object); err != nil {
				t.Fatal(err)
			}
			claim(object.Kind, object.Metadata.Name)
			selector := fmt.Sprint(object.Spec.Selector, object.Spec.PodSelector)
			if slices.Contains([]string{"Service", "PodDisruptionBudget", "NetworkPolicy"}, object.Kind) && !selectsOne(selector, own) {
				t.Errorf("%s selects %s, not the pods of %s alone", file, selector, name)
			}
		}
	}
}

// selectsOne reports whether a selector, as it is printed, names one of some programs.
func selectsOne(selector string, programs []string) bool {
	return slices.ContainsFunc(programs, func(name string) bool {
		_, rest, found := strings.Cut(selector, "app.kubernetes.io/name:"+name)
		return found && (rest[0] == ' ' || rest[0] == ']')
	})
}

func TestMissingBundleIsAnError(t *testing.T) {
	results := checkBundle(t.TempDir()).Results
	if len(results) != 1 || results[0].State != "error" || len(results[0].Errors) != 1 {
		t.Errorf("got %+v", results)
	}
}

// Each problem must be found by its check and by no other, but that a right beyond
// all reason is one beyond those allowed too.
func TestChecksFindFaults(t *testing.T) {
	container := func(b *bundle) *corev1.Container { return &b.manager.Spec.Containers[0] }
	grant := func(b *bundle, rule rbacv1.PolicyRule) {
		permissions := &b.csv.Spec.Install.Spec.ClusterPermissions[0]
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
		of      string // the package; empty: berg-operator
	}{
		{"a variable is missing", "variables-are-complete", "CHALLENGE_NAMESPACE", func(b *bundle) {
			at := variable(b, "CHALLENGE_NAMESPACE")
			container(b).Env = slices.Delete(container(b).Env, at, at+1)
		}, ""},
		{"a default differs", "variables-are-complete", "CHALLENGE_NAMESPACE", func(b *bundle) {
			container(b).Env[variable(b, "CHALLENGE_NAMESPACE")].Value = "elsewhere"
		}, ""},
		{"a variable is unknown", "variables-are-complete", "NOBODY_READS_ME", func(b *bundle) {
			container(b).Env = append(container(b).Env, corev1.EnvVar{Name: "NOBODY_READS_ME"})
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
			permissions := &b.csv.Spec.Install.Spec.ClusterPermissions[0]
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
					func(d descriptor) bool { return d.Path == "containers[0].ports[0].type" })
			}
		}, ""},
		{"a field has no descriptor", "fields-are-described", "ownerId", func(b *bundle) {
			for i, kind := range b.csv.Spec.CustomResourceDefinitions.Owned {
				b.csv.Spec.CustomResourceDefinitions.Owned[i].SpecDescriptors = slices.DeleteFunc(kind.SpecDescriptors,
					func(d descriptor) bool { return d.Path == "ownerId" })
			}
		}, ""},
	} {
		t.Run(test.problem, func(t *testing.T) {
			b := loadOurs(t, cmp.Or(test.of, "berg-operator"))
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

// The catalog offers each bundle, in a channel that its package knows.
func TestCatalogOffersTheBundles(t *testing.T) {
	for name := range folders(t) {
		b := loadOurs(t, name)
		var channels []string
		defaultChannel, offered := "", false
		for _, doc := range documents(t, filepath.Join(root, "catalog", name, "catalog.yaml")) {
			var entry struct {
				Schema, Name, DefaultChannel string
				Icon                         struct{ Base64data []byte }
				Entries                      []struct{ Name string }
			}
			if err := yaml.Unmarshal(doc, &entry); err != nil {
				t.Fatal(err)
			}
			switch entry.Schema {
			case "olm.package":
				defaultChannel = entry.DefaultChannel
				if !bytes.Equal(entry.Icon.Base64data, b.csv.Spec.Icon[0].Data) {
					t.Errorf("%s: the package's icon is not that of the bundle", name)
				}
			case "olm.channel":
				channels = append(channels, entry.Name)
				for _, e := range entry.Entries {
					offered = offered || e.Name == b.csv.Metadata.Name
				}
			}
		}
		if !slices.Contains(channels, defaultChannel) {
			t.Errorf("%s: the default channel %q is not among the channels %q", name, defaultChannel, channels)
		}
		if !offered {
			t.Errorf("no channel offers %s: add it to catalog/templates/%s.yaml", b.csv.Metadata.Name, name)
		}
	}
}

func TestIconsAreTheDrawings(t *testing.T) {
	drawings, err := filepath.Glob(filepath.Join(root, "config", "packages", "*", "icon.svg"))
	if err != nil || len(drawings) != 4 {
		t.Fatalf("the drawings are %q: %v", drawings, err)
	}
	for _, file := range append(drawings, filepath.Join(root, "config", "manifests", "icon.svg")) {
		drawing, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(string(drawing), "<title>")
		name, _, _ = strings.Cut(name, "</title>")
		icons := loadOurs(t, name).csv.Spec.Icon
		if len(icons) != 1 || !bytes.Equal(icons[0].Data, drawing) {
			t.Errorf("the icon of %s is not %s: put its base64 form into bases next to it and into catalog/templates/%s.yaml", name, file, name)
		}
	}
}

// What a registry says of a bundle must be what the bundle says of itself.
func TestImageLabelsAreTheAnnotations(t *testing.T) {
	for _, folder := range folders(t) {
		text, err := os.ReadFile(filepath.Join(folder, "metadata", "annotations.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var metadata struct {
			Annotations map[string]string `json:"annotations"`
		}
		if err := yaml.Unmarshal(text, &metadata); err != nil {
			t.Fatal(err)
		}
		dockerfile, err := os.ReadFile(folder + ".Dockerfile")
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{}
		for line := range strings.Lines(string(dockerfile)) {
			if label, ok := strings.CutPrefix(strings.TrimSpace(line), "LABEL "); ok {
				key, value, _ := strings.Cut(label, "=")
				labels[key] = value
			}
		}
		if got, want := fmt.Sprint(labels), fmt.Sprint(metadata.Annotations); got != want {
			t.Errorf("labels of %s.Dockerfile:\n%s\nannotations:\n%s", folder, got, want)
		}
	}
}

func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	for doc := range strings.SplitSeq(string(text), "---\n") {
		if strings.TrimSpace(doc) != "" {
			docs = append(docs, []byte(doc))
		}
	}
	return docs
}
