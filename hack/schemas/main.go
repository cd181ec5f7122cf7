// Command schemas writes a JSON schema of each Kind, for editors and for programs such as kubeconform, from the CRDs in
// config/. The files are where such programs look: <group>/<kind>_<version>.json.
//
// A JSON schema has the fields, types and limits of a CRD. It has not its rules in CEL, which the API server alone evaluates.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	config := flag.String("config", "config", "folder with the CRDs, in */crd/bases")
	output := flag.String("output", "deploy/schemas", "folder to write")
	flag.Parse()
	if err := run(*config, *output); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(config, output string) error {
	files, err := filepath.Glob(filepath.Join(config, "*", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no CRD in %s/*/crd/bases", config)
	}
	// A Kind that no longer exists leaves no schema behind.
	if err := os.RemoveAll(output); err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for path, schema := range schemasOf(&crd) {
			data, err := json.MarshalIndent(schema, "", "  ")
			if err != nil {
				return err
			}
			path = filepath.Join(output, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				return err
			}
			if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil { //nolint:gosec // a file of the repository
				return err
			}
		}
	}
	return nil
}

type object = map[string]any

// schemasOf returns the schemas of all versions of a Kind, by file.
func schemasOf(crd *apiextensionsv1.CustomResourceDefinition) map[string]object {
	all := map[string]object{}
	for _, v := range crd.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		s := schemaOf(v.Schema.OpenAPIV3Schema)
		s["$schema"] = "http://json-schema.org/draft-07/schema#"
		s["title"] = crd.Spec.Names.Kind
		properties := s["properties"].(object)
		properties["apiVersion"] = object{"const": crd.Spec.Group + "/" + v.Name}
		properties["kind"] = object{"const": crd.Spec.Names.Kind}
		properties["metadata"] = object{"type": "object"}
		s["required"] = slices.Compact(slices.Sorted(slices.Values(append([]string{"apiVersion", "kind", "metadata"}, v.Schema.OpenAPIV3Schema.Required...))))
		all[filepath.Join(crd.Spec.Group, strings.ToLower(crd.Spec.Names.Kind)+"_"+v.Name+".json")] = s
	}
	return all
}

// schemaOf translates a structural schema. The API server drops fields that a CRD does not have; here they are errors, because an
// author who writes one means another.
func schemaOf(from *apiextensionsv1.JSONSchemaProps) object {
	to := object{}
	set := func(key string, value any, given bool) {
		if given {
			to[key] = value
		}
	}
	set("description", from.Description, from.Description != "")
	switch {
	case from.XIntOrString:
		to["type"] = types([]string{"integer", "string"}, from.Nullable)
	case from.Type != "":
		to["type"] = types([]string{from.Type}, from.Nullable)
	}
	set("format", from.Format, from.Format == "date-time" || from.Format == "uuid")
	set("pattern", from.Pattern, from.Pattern != "")
	set("minLength", from.MinLength, from.MinLength != nil)
	set("maxLength", from.MaxLength, from.MaxLength != nil)
	set("minItems", from.MinItems, from.MinItems != nil)
	set("maxItems", from.MaxItems, from.MaxItems != nil)
	set("minProperties", from.MinProperties, from.MinProperties != nil)
	set("maxProperties", from.MaxProperties, from.MaxProperties != nil)
	set("minimum", from.Minimum, from.Minimum != nil && !from.ExclusiveMinimum)
	set("exclusiveMinimum", from.Minimum, from.Minimum != nil && from.ExclusiveMinimum)
	set("maximum", from.Maximum, from.Maximum != nil && !from.ExclusiveMaximum)
	set("exclusiveMaximum", from.Maximum, from.Maximum != nil && from.ExclusiveMaximum)
	set("multipleOf", from.MultipleOf, from.MultipleOf != nil)
	set("uniqueItems", true, from.UniqueItems || from.XListType != nil && *from.XListType == "set")
	set("enum", from.Enum, len(from.Enum) > 0)
	set("required", from.Required, len(from.Required) > 0)
	if from.Default != nil {
		to["default"] = json.RawMessage(from.Default.Raw)
	}
	for key, some := range map[string][]apiextensionsv1.JSONSchemaProps{"allOf": from.AllOf, "oneOf": from.OneOf, "anyOf": from.AnyOf} {
		if len(some) > 0 && !from.XIntOrString { // whose anyOf says the type again
			to[key] = allOf(some)
		}
	}
	if from.Not != nil {
		to["not"] = schemaOf(from.Not)
	}
	if from.Items != nil && from.Items.Schema != nil {
		to["items"] = schemaOf(from.Items.Schema)
	}
	if len(from.Properties) > 0 {
		properties := object{}
		for _, name := range slices.Sorted(maps.Keys(from.Properties)) {
			p := from.Properties[name]
			properties[name] = schemaOf(&p)
		}
		to["properties"] = properties
		open := from.XPreserveUnknownFields != nil && *from.XPreserveUnknownFields || from.XEmbeddedResource
		set("additionalProperties", false, from.Type == "object" && !open)
	}
	if more := from.AdditionalProperties; more != nil {
		if more.Schema != nil {
			to["additionalProperties"] = schemaOf(more.Schema)
		} else {
			to["additionalProperties"] = more.Allows
		}
	}
	return to
}

// types is one type as a word, and several as a list.
func types(all []string, nullable bool) any {
	if nullable {
		all = append(all, "null")
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

func allOf(some []apiextensionsv1.JSONSchemaProps) []object {
	var all []object
	for i := range some {
		all = append(all, schemaOf(&some[i]))
	}
	return all
}
