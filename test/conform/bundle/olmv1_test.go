package bundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

const root = "../../.."

// bundle is a bundle as OLM v1 reads it.
type bundle struct {
	folder, packageName string
	csv                 operatorsv1alpha1.ClusterServiceVersion
	crds                []string
	others              []unstructured.Unstructured
	// properties are the types in metadata/properties.yaml and in the annotation olm.properties.
	properties []string
}

// supported are the kinds that a bundle may have in addition to its ClusterServiceVersion: OLM v1 refuses a bundle with another one.
// Admission policies are not among them.
var supported = []string{
	"ClusterRole", "ClusterRoleBinding", "ConfigMap", "ConsoleCLIDownload", "ConsoleLink", "ConsolePlugin", "ConsoleQuickStart",
	"ConsoleYAMLSample", "CustomResourceDefinition", "NetworkPolicy", "PodDisruptionBudget", "PriorityClass", "PrometheusRule", "Role",
	"RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor", "VerticalPodAutoscaler",
}

// rules are the rules by their names. A rule returns what breaks it.
var rules = map[string]func(bundle) []string{
	"the manifests contain no folder and one ClusterServiceVersion": func(b bundle) []string {
		return problem(b.csv.Name == "", "there is no ClusterServiceVersion")
	},
	"the package has a name": func(b bundle) []string {
		return problem(b.packageName == "" || !strings.HasPrefix(b.csv.Name, b.packageName+".v"), "package %q of %s", b.packageName, b.csv.Name)
	},
	"all namespaces are supported, and nothing else": func(b bundle) []string {
		var modes []string
		for _, m := range b.csv.Spec.InstallModes {
			if m.Supported {
				modes = append(modes, string(m.Type))
			}
		}
		return problem(!slices.Equal(modes, []string{"AllNamespaces"}), "supported are %q", modes)
	},
	"there are no dependencies": func(b bundle) (problems []string) {
		for _, p := range []string{"olm.gvk.required", "olm.package.required", "olm.constraint"} {
			problems = append(problems, problem(slices.Contains(b.properties, p), "the property %s", p)...)
		}
		if _, err := os.Stat(filepath.Join(b.folder, "metadata", "dependencies.yaml")); err == nil {
			problems = append(problems, "metadata/dependencies.yaml exists")
		}
		required := b.csv.Spec.CustomResourceDefinitions.Required
		return append(problems, problem(len(required) > 0, "CRDs of others are required: %v", required)...)
	},
	"no APIService is brought or required": func(b bundle) []string {
		s := b.csv.Spec.APIServiceDefinitions
		return problem(len(s.Owned)+len(s.Required) > 0, "APIServices %v", s)
	},
	"every kind is supported": func(b bundle) (problems []string) {
		for _, o := range b.others {
			problems = append(problems, problem(!slices.Contains(supported, o.GetKind()), "%s %s", o.GetKind(), o.GetName())...)
		}
		return problems
	},
	"every owned CRD is there, once": func(b bundle) (problems []string) {
		var owned []string
		for _, d := range b.csv.Spec.CustomResourceDefinitions.Owned {
			owned = append(owned, d.Name)
		}
		slices.Sort(owned)
		there := slices.Sorted(slices.Values(b.crds))
		return problem(!slices.Equal(owned, there), "owned are %q, there are %q", owned, there)
	},
	"names of Deployments are valid and unique": func(b bundle) (problems []string) {
		seen := map[string]bool{}
		for _, d := range b.deployments() {
			problems = append(problems, problem(seen[d.Name] || len(validation.IsDNS1123Subdomain(d.Name)) > 0, "%q", d.Name)...)
			seen[d.Name] = true
		}
		return problems
	},
	"webhooks have a Deployment, a valid unique name, and forbidden rules nowhere": webhooks,
	// The certificate is issued by cert-manager, which OLM v1 needs for each bundle with a webhook.
	"only the package with webhooks needs cert-manager": func(b bundle) []string {
		return problem(len(b.csv.Spec.WebhookDefinitions) > 0 != slices.Contains([]string{"kibaship-operator", "berg-operator-all"}, b.packageName), "%d webhooks", len(b.csv.Spec.WebhookDefinitions))
	},
	// In the mode AllNamespaces, both versions of OLM make ClusterRoles of these.
	"rights of a namespace may hold in every namespace": func(b bundle) (problems []string) {
		for _, p := range b.csv.Spec.InstallStrategy.StrategySpec.Permissions {
			for _, r := range p.Rules {
				wide := len(r.ResourceNames) == 0 && !slices.Equal(r.Verbs, []string{"create"}) || slices.Contains(r.Resources, "secrets") || slices.Contains(r.Resources, "*")
				problems = append(problems, problem(wide, "%s: %v", p.ServiceAccountName, r)...)
			}
		}
		return problems
	},
	// They rely on a namespace that only an administrator chooses.
	"no object names a namespace": func(b bundle) (problems []string) {
		for _, o := range b.others {
			problems = append(problems, problem(o.GetNamespace() != "" || o.GetKind() == "RoleBinding" || o.GetKind() == "ClusterRoleBinding", "%s %s", o.GetKind(), o.GetName())...)
		}
		return problems
	},
	// OLM v1 has no OperatorConditions. The operator must work where the variable is empty.
	"no OperatorCondition is required": func(b bundle) (problems []string) {
		for _, d := range b.deployments() {
			for _, e := range d.Spec.Template.Spec.Containers[0].Env {
				problems = append(problems, problem(e.Name == "OPERATOR_CONDITION_NAME" && e.Value != "", "%s sets %s", d.Name, e.Value)...)
			}
		}
		return problems
	},
	// The settings come from a ConfigMap: OLM v1 has no stable way to set variables.
	"the account may read the settings": func(b bundle) (problems []string) {
		for _, d := range b.deployments() {
			account, may := d.Spec.Template.Spec.ServiceAccountName, strings.HasSuffix(d.Name, "-installer")
			for _, p := range b.csv.Spec.InstallStrategy.StrategySpec.Permissions {
				for _, r := range p.Rules {
					may = may || p.ServiceAccountName == account && slices.Contains(r.Resources, "configmaps") &&
						slices.Equal(r.ResourceNames, []string{"berg-operator-settings"}) && slices.Contains(r.Verbs, "watch")
				}
			}
			problems = append(problems, problem(!may, "%s may not", account)...)
		}
		return problems
	},
	// The service account of a ClusterExtension must not have the name of one that the bundle brings.
	"accounts are not named after the package": func(b bundle) (problems []string) {
		for _, d := range b.deployments() {
			problems = append(problems, problem(d.Spec.Template.Spec.ServiceAccountName == b.packageName, "%s", b.packageName)...)
		}
		return problems
	},
	// Its store is a Secret, in parts since 1.5; before, the release must fit into one.
	"the bundle fits into a Secret": func(b bundle) []string {
		size := 0
		files, err := filepath.Glob(filepath.Join(b.folder, "manifests", "*"))
		for _, f := range files {
			if info, statErr := os.Stat(f); statErr == nil {
				size += int(info.Size())
			}
		}
		const compressed = 4 // YAML takes a fifth or less
		return problem(err != nil || size/compressed > 1<<20, "%d bytes", size)
	},
}

func problem(broken bool, format string, values ...any) []string {
	if !broken {
		return nil
	}
	return []string{fmt.Sprintf(format, values...)}
}

func (b bundle) deployments() []operatorsv1alpha1.StrategyDeploymentSpec {
	return b.csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs
}

func webhooks(b bundle) (problems []string) {
	seen := map[string]bool{}
	for _, w := range b.csv.Spec.WebhookDefinitions {
		exists := slices.ContainsFunc(b.deployments(), func(d operatorsv1alpha1.StrategyDeploymentSpec) bool { return d.Name == w.DeploymentName })
		problems = append(problems, problem(!exists, "%s is of the Deployment %s, which does not exist", w.GenerateName, w.DeploymentName)...)
		key := string(w.Type) + w.GenerateName
		problems = append(problems, problem(seen[key] || len(validation.IsDNS1123Subdomain(w.GenerateName)) > 0, "the name %q", w.GenerateName)...)
		seen[key] = true
		problems = append(problems, problem(w.Type == operatorsv1alpha1.ConversionWebhook, "%s converts", w.GenerateName)...)
		for _, r := range w.Rules {
			forbidden := slices.ContainsFunc(r.APIGroups, func(g string) bool {
				return slices.Contains([]string{"*", "olm.operatorframework.io", "admissionregistration.k8s.io"}, g)
			})
			problems = append(problems, problem(forbidden, "%s has a rule for %v", w.GenerateName, r.APIGroups)...)
		}
	}
	return problems
}

// read reads a bundle as OLM v1 does.
func read(folder string) (bundle, error) {
	b := bundle{folder: folder}
	var metadata struct {
		Annotations map[string]string `json:"annotations"`
	}
	text, err := os.ReadFile(filepath.Join(folder, "metadata", "annotations.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &metadata)
	}
	if err != nil {
		return b, err
	}
	b.packageName = metadata.Annotations["operators.operatorframework.io.bundle.package.v1"]
	entries, err := os.ReadDir(filepath.Join(folder, "manifests"))
	if err != nil {
		return b, err
	}
	for _, entry := range entries {
		if text, err = os.ReadFile(filepath.Join(folder, "manifests", entry.Name())); err != nil { // also of a folder
			return b, err
		}
		if err := b.add(text); err != nil {
			return b, fmt.Errorf("%s: %w", entry.Name(), err)
		}
	}
	type property struct {
		Type string `json:"type"`
	}
	var inline []property
	if text := b.csv.Annotations["olm.properties"]; text != "" {
		if err := json.Unmarshal([]byte(text), &inline); err != nil {
			return b, err
		}
	}
	var file struct {
		Properties []property `json:"properties"`
	}
	if text, err = os.ReadFile(filepath.Join(folder, "metadata", "properties.yaml")); err == nil {
		if err := yaml.Unmarshal(text, &file); err != nil {
			return b, err
		}
	}
	for _, p := range append(inline, file.Properties...) {
		b.properties = append(b.properties, p.Type)
	}
	return b, nil
}

func (b *bundle) add(text []byte) error {
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return err
		}
		switch o.GetKind() {
		case "ClusterServiceVersion":
			if err := yaml.UnmarshalStrict(document, &b.csv); err != nil {
				return err
			}
		case "CustomResourceDefinition":
			b.crds = append(b.crds, o.GetName())
			fallthrough
		default:
			b.others = append(b.others, o)
		}
	}
	return nil
}

func bundles(t *testing.T) []bundle {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(root, "deploy", "packages", "*", "bundle"))
	if err != nil || len(folders) != 4 {
		t.Fatalf("%q: %v", folders, err)
	}
	if other := os.Getenv("BUNDLE"); other != "" { // one that is not in the tree
		folders = append(folders, other)
	}
	var all []bundle
	for _, folder := range append(folders, filepath.Join(root, "bundle")) {
		b, err := read(folder)
		if err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		all = append(all, b)
	}
	return all
}

func TestRulesOfOLMv1(t *testing.T) {
	for _, b := range bundles(t) {
		for name, rule := range rules {
			t.Run(b.packageName+"/"+name, func(t *testing.T) {
				for _, p := range rule(b) {
					t.Error(p)
				}
			})
		}
	}
}

// Each rule refuses a bundle that breaks it.
func TestEachRuleRefuses(t *testing.T) {
	object := func(kind, namespace string) unstructured.Unstructured {
		return unstructured.Unstructured{Object: map[string]any{"kind": kind, "metadata": map[string]any{"name": "x", "namespace": namespace}}}
	}
	for name, breaks := range map[string]func(*bundle){
		"the manifests contain no folder and one ClusterServiceVersion": func(b *bundle) { b.csv.Name = "" },
		"the package has a name":                         func(b *bundle) { b.packageName = "" },
		"all namespaces are supported, and nothing else": func(b *bundle) { b.csv.Spec.InstallModes[0].Supported = true },
		"there are no dependencies":                      func(b *bundle) { b.properties = []string{"olm.gvk.required"} },
		"no APIService is brought or required": func(b *bundle) {
			b.csv.Spec.APIServiceDefinitions.Owned = make([]operatorsv1alpha1.APIServiceDescription, 1)
		},
		"every kind is supported":                   func(b *bundle) { b.others = append(b.others, object("ValidatingAdmissionPolicy", "")) },
		"every owned CRD is there, once":            func(b *bundle) { b.crds = append(b.crds, b.crds[0]) },
		"names of Deployments are valid and unique": func(b *bundle) { b.deployments()[0].Name = b.deployments()[1].Name },
		"webhooks have a Deployment, a valid unique name, and forbidden rules nowhere": func(b *bundle) {
			b.csv.Spec.WebhookDefinitions = []operatorsv1alpha1.WebhookDescription{{GenerateName: "x", DeploymentName: "nowhere"}}
		},
		"only the package with webhooks needs cert-manager": func(b *bundle) {
			b.csv.Spec.WebhookDefinitions = make([]operatorsv1alpha1.WebhookDescription, 1)
		},
		"rights of a namespace may hold in every namespace": func(b *bundle) {
			b.csv.Spec.InstallStrategy.StrategySpec.Permissions[0].Rules[0].ResourceNames = nil
		},
		"no object names a namespace": func(b *bundle) { b.others = append(b.others, object("ConfigMap", "berg")) },
		"no OperatorCondition is required": func(b *bundle) {
			for _, d := range b.deployments() {
				for i, e := range d.Spec.Template.Spec.Containers[0].Env {
					if e.Name == "OPERATOR_CONDITION_NAME" {
						d.Spec.Template.Spec.Containers[0].Env[i].Value = "x"
					}
				}
			}
		},
		"the account may read the settings": func(b *bundle) { b.csv.Spec.InstallStrategy.StrategySpec.Permissions = nil },
		"accounts are not named after the package": func(b *bundle) {
			b.deployments()[0].Spec.Template.Spec.ServiceAccountName = b.packageName
		},
		"the bundle fits into a Secret": func(b *bundle) {
			b.folder = t.TempDir()
			large := bytes.Repeat([]byte("x"), 5<<20)
			if err := os.MkdirAll(filepath.Join(b.folder, "manifests"), 0o700); err == nil {
				_ = os.WriteFile(filepath.Join(b.folder, "manifests", "large.yaml"), large, 0o600)
			}
		},
	} {
		b, err := read(filepath.Join(root, "bundle"))
		if err != nil {
			t.Fatal(err)
		}
		breaks(&b)
		if len(rules[name](b)) == 0 {
			t.Errorf("not refused: %s", name)
		}
	}
}

// catalogd reads a catalog as a stream of documents, which must have schemas of its own format, and shows the icon of a package.
func TestCatalogsAreThoseOfCatalogd(t *testing.T) {
	catalogs, err := filepath.Glob(filepath.Join(root, "catalog", "*", "catalog.yaml"))
	if err != nil || len(catalogs) != 5 {
		t.Fatalf("%q: %v", catalogs, err)
	}
	for _, catalog := range catalogs {
		folder := filepath.Dir(catalog)
		files, err := filepath.Glob(filepath.Join(folder, "bundles", "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		name, versions, packages := filepath.Base(folder), 0, 0
		for _, file := range append(files, catalog) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for document := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
				var d struct {
					Schema, Package, Name, Image string
					Icon                         struct{ Base64data, Mediatype string }
					Properties                   []struct{ Type string }
				}
				if err := yaml.Unmarshal([]byte(document), &d); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				for _, p := range problem(d.Package != name && d.Schema != "olm.package", "%s is of the package %q", d.Name, d.Package) {
					t.Errorf("%s: %s", file, p)
				}
				switch d.Schema {
				case "olm.package":
					packages++
					if _, err := base64.StdEncoding.DecodeString(d.Icon.Base64data); err != nil || d.Name != name || d.Icon.Mediatype != "image/svg+xml" {
						t.Errorf("%s: package %s, icon %s: %v", file, d.Name, d.Icon.Mediatype, err)
					}
				case "olm.channel":
				case "olm.bundle":
					versions++
					var types []string
					for _, p := range d.Properties {
						types = append(types, p.Type)
					}
					// OLM v1 finds the version in the first, and resolves no dependencies.
					if !slices.Contains(types, "olm.package") || slices.Contains(types, "olm.gvk.required") || slices.Contains(types, "olm.package.required") || slices.Contains(types, "olm.constraint") || d.Image == "" {
						t.Errorf("%s: the properties are %q, the image is %q", file, types, d.Image)
					}
				default:
					t.Errorf("%s: the schema %q", file, d.Schema)
				}
			}
		}
		if packages != 1 || versions == 0 {
			t.Errorf("%s: %d packages and %d bundles", name, packages, versions)
		}
	}
}
