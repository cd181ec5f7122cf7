package compatibility

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
)

// visit calls a function with every schema below one, and its path.
func visit(schema *apiextensionsv1.JSONSchemaProps, path string, do func(path string, schema *apiextensionsv1.JSONSchemaProps)) {
	do(path, schema)
	for name := range schema.Properties {
		part := schema.Properties[name]
		visit(&part, path+"."+name, do)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		visit(schema.Items.Schema, path+"[]", do)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		visit(schema.AdditionalProperties.Schema, path+"{}", do)
	}
}

// The error of a pattern quotes a regular expression. Rules have messages. Exceptions are fields that the operator writes, and amounts:
// before Kubernetes 1.34, the API server takes a rule about an integer or a string for too costly.
func TestErrorsAreSentences(t *testing.T) {
	amounts := 0
	for name, definition := range read(t, ours) {
		for _, version := range definition.Spec.Versions {
			visit(version.Schema.OpenAPIV3Schema, "", func(path string, schema *apiextensionsv1.JSONSchemaProps) {
				switch {
				case schema.Pattern == "", strings.HasPrefix(path, ".status."):
				case schema.XIntOrString:
					amounts++
				default:
					t.Errorf("%s%s: its error would be %q: write a rule with a message", name, path, "should match '"+schema.Pattern+"'")
				}
				for _, rule := range schema.XValidations {
					if rule.Message == "" && rule.MessageExpression == "" {
						t.Errorf("%s%s: the rule %s has no message", name, path, rule.Rule)
					}
				}
			})
		}
	}
	if amounts == 0 {
		t.Error("no amount was found")
	}
}

// A list without a type is merged as a whole, and does not say so.
func TestListsSayHowTheyAreMerged(t *testing.T) {
	lists := 0
	for name, definition := range read(t, ours) {
		for _, version := range definition.Spec.Versions {
			visit(version.Schema.OpenAPIV3Schema, "", func(path string, schema *apiextensionsv1.JSONSchemaProps) {
				if schema.Type != "array" {
					return
				}
				lists++
				if schema.XListType == nil {
					t.Errorf("%s%s has no list type", name, path)
				}
			})
		}
	}
	if lists < 20 {
		t.Errorf("%d lists were found", lists)
	}
}

// The API server refuses definitions with mistakes, and with rules that cost too much.
func TestDefinitionsAreValid(t *testing.T) {
	for name, definition := range read(t, ours) {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, internal, nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{internal.Spec.Versions[0].Name}
		for _, err := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
			t.Errorf("%s: %s", name, err.Error()[:min(400, len(err.Error()))])
		}
	}
}

// The fields by which clients ask for the objects of one owner, Challenge or Project.
func TestReferencesCanBeSelected(t *testing.T) {
	definitions := read(t, ours)
	for name, fields := range map[string][]string{
		"challengeinstances.berg.norelect.ch":                            {".spec.ownerId", ".spec.challengeRef.name", ".status.phase"},
		"challengeinstancerecords.berg.norelect.ch":                      {".spec.ownerId", ".spec.challengeRef.name"},
		"challengechecks.berg.norelect.ch":                               {".spec.challengeRef.name"},
		"challenges.berg.norelect.ch":                                    {".spec.event"},
		"challenges.apps.hexactf.io":                                     {".spec.definition"},
		"applications.platform.operator.kibaship.com":                    {".spec.projectRef.name"},
		"deployments.platform.operator.kibaship.com":                     {".spec.applicationRef.name"},
		"containernetworktunnelproxies.usvc-dev.developer.microsoft.com": {".spec.containerNetworkName"},
	} {
		definition := definitions[name]
		if definition == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		for _, path := range fields {
			if !slices.Contains(definition.Spec.Versions[0].SelectableFields, apiextensionsv1.SelectableField{JSONPath: path}) {
				t.Errorf("%s: %s cannot be selected", name, path)
			}
		}
	}
}

// kubectl delete all --all deletes what is in the category all, of the cluster too. The contract of Challenges and instances wants them
// there; docs/berg/challenge.md warns.
func TestFewKindsAreInTheCategoryAll(t *testing.T) {
	for name, definition := range read(t, ours) {
		wanted := name == "challenges.berg.norelect.ch" || name == "challengeinstances.berg.norelect.ch"
		if slices.Contains(definition.Spec.Names.Categories, "all") != wanted {
			t.Errorf("%s has the categories %v", name, definition.Spec.Names.Categories)
		}
	}
}
