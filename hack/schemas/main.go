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
		for _, v := range crd.Spec.Versions {
			schema, err := schemaFrom(&crd, v)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			path := filepath.Join(output, crd.Spec.Group, strings.ToLower(crd.Spec.Names.Kind)+"_"+v.Name+".json")
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				return err
			}
			if err := os.WriteFile(path, append(schema, '\n'), 0o644); err != nil { //nolint:gosec // a file of the repository
				return err
			}
		}
	}
	return nil
}

type object = map[string]any

// schemaFrom returns the schema of a version of a Kind.
func schemaFrom(crd *apiextensionsv1.CustomResourceDefinition, v apiextensionsv1.CustomResourceDefinitionVersion) ([]byte, error) {
	text, err := json.Marshal(v.Schema.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	var schema object
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, err
	}
	translate(schema)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema["title"] = crd.Spec.Names.Kind
	properties, _ := schema["properties"].(object)
	properties["apiVersion"] = object{"const": crd.Spec.Group + "/" + v.Name}
	properties["kind"] = object{"const": crd.Spec.Names.Kind}
	properties["metadata"] = object{"type": "object"}
	required := append([]string{"apiVersion", "kind", "metadata"}, v.Schema.OpenAPIV3Schema.Required...)
	schema["required"] = slices.Compact(slices.Sorted(slices.Values(required)))
	return json.MarshalIndent(schema, "", "  ")
}

// translate turns a structural schema into a JSON schema. The API server drops fields that a CRD does not have; here they are
// errors, because an author who writes one means another.
func translate(schema object) {
	if schema["x-kubernetes-int-or-string"] == true {
		schema["type"] = []any{"integer", "string"}
		delete(schema, "anyOf") // says the type again
	}
	if schema["nullable"] == true {
		schema["type"] = append(slices.Clone(listed(schema["type"])), "null")
	}
	if format := schema["format"]; format != "date-time" && format != "uuid" {
		delete(schema, "format")
	}
	for bound, exclusive := range map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"} {
		if schema[exclusive] == true {
			schema[exclusive] = schema[bound]
			delete(schema, bound)
		}
	}
	if schema["x-kubernetes-list-type"] == "set" {
		schema["uniqueItems"] = true
	}
	open := schema["x-kubernetes-preserve-unknown-fields"] == true || schema["x-kubernetes-embedded-resource"] == true
	properties, _ := schema["properties"].(object)
	if len(properties) > 0 && slices.Contains(listed(schema["type"]), any("object")) && !open {
		schema["additionalProperties"] = false
	}
	maps.DeleteFunc(schema, func(key string, _ any) bool { return strings.HasPrefix(key, "x-kubernetes-") || key == "nullable" })
	for _, part := range properties {
		translate(part.(object)) //nolint:forcetypeassert // a CRD's properties are schemas
	}
	for _, key := range []string{"items", "additionalProperties", "not", "allOf", "oneOf", "anyOf"} {
		for _, part := range listed(schema[key]) {
			if inner, ok := part.(object); ok {
				translate(inner)
			}
		}
	}
}

// listed returns the items of a list, and one value as a list of one.
func listed(value any) []any {
	if list, ok := value.([]any); ok {
		return list
	}
	return []any{value}
}
