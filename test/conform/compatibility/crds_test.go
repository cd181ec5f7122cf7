// Package compatibility checks that a version of the operator only adds to what
// the one before it promised: the upgrade of a cluster replaces the definitions
// first, while the old operator still works, and no resource that is stored may
// become invalid.
package compatibility

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/yaml"
)

const (
	ours      = "../../../config/*/crd/bases"
	published = "../../../catalog/crds"
)

// Words may change, and enumerations may grow. What the library does not know is
// refused, so that a person looks at it.
var rules = config.Config{
	Validations: []config.ValidationConfig{
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		{Name: "enum", Enforcement: config.EnforcementPolicyError, Configuration: map[string]any{"additionPolicy": "Allow"}},
	},
	UnhandledEnforcement: config.EnforcementPolicyError,
	Conversion:           config.ConversionPolicyNone,
}

// incompatible returns what of a definition is not merely added to.
func incompatible(before, after *apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	comparison, err := runner.New(&rules, runner.DefaultRegistry())
	if err != nil {
		return nil, err
	}
	results := comparison.Run(before, after)
	var problems []string
	for _, r := range results.CRDValidation {
		problems = append(problems, r.Errors...)
	}
	for _, version := range slices.Concat(results.SameVersionValidation, results.ServedVersionValidation) {
		for _, property := range version.PropertyComparisons {
			for _, r := range property.ComparisonResults {
				for _, e := range r.Errors {
					problems = append(problems, fmt.Sprintf("%s %s: %s", version.Version, property.Property, e))
				}
			}
		}
	}
	return problems, nil
}

func TestDefinitionsOnlyGrow(t *testing.T) {
	newest, err := newestPublished()
	if err != nil {
		t.Fatal(err)
	}
	definitions := read(t, ours)
	for name, before := range read(t, newest) {
		after, ok := definitions[name]
		if !ok {
			t.Errorf("%s, which %s has, is gone", name, newest)
			continue
		}
		problems, err := incompatible(before, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s is not compatible with %s: %s", name, newest, p)
		}
	}
	if t.Failed() {
		t.Log("Resources of clusters may depend on it: make the change optional, or offer it as a new version of the kind. " +
			"While nothing is published yet, the definitions may become the new baseline: cp config/*/crd/bases/*.yaml catalog/crds/baseline")
	}
}

// newestPublished returns the folder with the definitions of the last version
// that was published, or of the baseline before there is one.
func newestPublished() (string, error) {
	entries, err := os.ReadDir(published)
	if err != nil {
		return "", err
	}
	newest, folder := semver.Version{}, "baseline"
	for _, e := range entries {
		version, err := semver.ParseTolerant(e.Name())
		if err == nil && version.GT(newest) {
			newest, folder = version, e.Name()
		}
	}
	return filepath.Join(published, folder), nil
}

// read returns the definitions of a folder, or of all folders of a pattern, by name.
func read(t *testing.T, folder string) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d definitions, %v", folder, len(files), err)
	}
	found := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, definition); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[definition.Name] = definition
	}
	return found
}

// Each change that would break a client is found, and each that would not is let
// through.
func TestChangesAreChecked(t *testing.T) {
	const instances = "challengeinstances.berg.norelect.ch"
	spec := func(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.JSONSchemaProps {
		s := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		return &s
	}
	field := func(name string, change func(*apiextensionsv1.JSONSchemaProps)) func(*apiextensionsv1.CustomResourceDefinition) {
		return func(d *apiextensionsv1.CustomResourceDefinition) {
			f := spec(d).Properties[name]
			change(&f)
			spec(d).Properties[name] = f
		}
	}
	for _, test := range []struct {
		change string
		says   string // "" if it is compatible
		make   func(*apiextensionsv1.CustomResourceDefinition)
	}{
		{"nothing", "", func(*apiextensionsv1.CustomResourceDefinition) {}},
		{"a new optional field", "", field("added", func(f *apiextensionsv1.JSONSchemaProps) { f.Type = "string" })},
		{"a new value of an enumeration", "", field("terminationReason", func(f *apiextensionsv1.JSONSchemaProps) {
			f.Enum = append(f.Enum, apiextensionsv1.JSON{Raw: []byte(`"Withdrawn"`)})
		})},
		{"other words", "", field("timeout", func(f *apiextensionsv1.JSONSchemaProps) { f.Description = "Other words." })},
		{"a wider bound", "", field("flag", func(f *apiextensionsv1.JSONSchemaProps) { f.MaxLength = ptr.To(*f.MaxLength + 1) })},
		{"a field is gone", "flag", func(d *apiextensionsv1.CustomResourceDefinition) { delete(spec(d).Properties, "flag") }},
		{"another type", "type", field("timeout", func(f *apiextensionsv1.JSONSchemaProps) { f.Type = "integer" })},
		{"a field is required", "required", func(d *apiextensionsv1.CustomResourceDefinition) {
			s := spec(d)
			s.Required = append(s.Required, "timeout")
			d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = *s
		}},
		{"a value of an enumeration is gone", "enum", field("terminationReason", func(f *apiextensionsv1.JSONSchemaProps) { f.Enum = f.Enum[1:] })},
		{"an enumeration is new", "enum", field("timeout", func(f *apiextensionsv1.JSONSchemaProps) {
			f.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"1h"`)}}
		})},
		{"a tighter bound", "max", field("flag", func(f *apiextensionsv1.JSONSchemaProps) { f.MaxLength = ptr.To(*f.MaxLength - 1) })},
		{"a new bound", "min", field("timeout", func(f *apiextensionsv1.JSONSchemaProps) { f.MinLength = ptr.To(int64(1)) })},
		{"another pattern", "pattern", field("ownerId", func(f *apiextensionsv1.JSONSchemaProps) { f.Pattern = "^x$" })},
		{"another default", "default", field("timeout", func(f *apiextensionsv1.JSONSchemaProps) { f.Default = &apiextensionsv1.JSON{Raw: []byte(`"1h"`)} })},
		{"a new rule", "unhandled", field("timeout", func(f *apiextensionsv1.JSONSchemaProps) {
			f.XValidations = apiextensionsv1.ValidationRules{{Rule: "self != '1h'"}}
		})},
		{"another scope", "scope", func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Scope = apiextensionsv1.ClusterScoped }},
		{"a version is gone", "version", func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Spec.Versions[0].Name = "v2"
			d.Status.StoredVersions = []string{"v2"}
		}},
	} {
		t.Run(test.change, func(t *testing.T) {
			before := read(t, ours)[instances]
			before.Status.StoredVersions = []string{"v1"}
			after := before.DeepCopy()
			test.make(after)
			problems, err := incompatible(before, after)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ToLower(strings.Join(problems, "\n"))
			if test.says == "" && len(problems) > 0 {
				t.Errorf("refused: %s", text)
			}
			if test.says != "" && !strings.Contains(text, test.says) {
				t.Errorf("says %q, want something about %q", text, test.says)
			}
		})
	}
}
