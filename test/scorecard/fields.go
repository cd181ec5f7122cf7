package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// foreign are the fields whose types are Kubernetes' own: consoles know them.
var foreign = map[string]bool{
	"Challenge.spec.containers[0].readinessProbe":                                     true,
	"Challenge.spec.containers[0].livenessProbe":                                      true,
	"ChallengeDefinition.spec.components[0].deployment.spec.template.spec.containers": true,
	"ChallengeDefinition.spec.components[0].service.spec":                             true,
}

// namesSecret are the paths of fields with the name of a Secret.
var namesSecret = regexp.MustCompile(`Secret$|[sS]ecretRef\.name$`)

// fields: a console shows every field of spec and status, down to the leaves, by
// a name and a description, and no field that does not exist.
func fields(b bundle) []string {
	var problems []string
	for _, kind := range b.csv.Spec.CustomResourceDefinitions.Owned {
		definition := b.definitions[kind.Name]
		if definition == nil {
			problems = append(problems, kind.Name+" is owned and not in the bundle")
			continue
		}
		i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == kind.Version })
		if i < 0 {
			problems = append(problems, fmt.Sprintf("%s has no version %s", kind.Name, kind.Version))
			continue
		}
		root := definition.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties
		statuses := make([]operatorsv1alpha1.SpecDescriptor, len(kind.StatusDescriptors))
		for n, d := range kind.StatusDescriptors {
			statuses[n] = operatorsv1alpha1.SpecDescriptor(d)
		}
		for part, descriptors := range map[string][]operatorsv1alpha1.SpecDescriptor{"spec": kind.SpecDescriptors, "status": statuses} {
			where := kind.Kind + "." + part
			described := map[string]bool{}
			for _, d := range descriptors {
				described[where+"."+d.Path] = true
				if namesSecret.MatchString(d.Path) && !slices.Contains(d.XDescriptors, "urn:alm:descriptor:io.kubernetes:Secret") {
					problems = append(problems, fmt.Sprintf("the descriptor of %s.%s does not say that it names a Secret", where, d.Path))
				}
				if d.DisplayName == "" || d.Description == "" {
					problems = append(problems, fmt.Sprintf("the descriptor of %s.%s has no name or no description", where, d.Path))
				}
			}
			exist := leavesAndBranches(where, root[part], nil)
			for _, path := range exist {
				if !described[path] {
					problems = append(problems, path+" has no descriptor: mark the field with +operator-sdk:csv:customresourcedefinitions")
				}
				delete(described, path)
			}
			for path := range described {
				problems = append(problems, path+" has a descriptor and does not exist")
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// leavesAndBranches appends the path of every field below a schema, in the way
// that descriptors name them: a field of a list's items is list[0].field.
func leavesAndBranches(path string, schema apiextensionsv1.JSONSchemaProps, paths []string) []string {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field, child := schema.Properties[name], path+"."+name
		paths = append(paths, child)
		if foreign[child] || strings.HasSuffix(child, ".status.conditions") {
			continue
		}
		if field.Items != nil && field.Items.Schema != nil {
			field, child = *field.Items.Schema, child+"[0]"
		}
		paths = leavesAndBranches(child, field, paths)
	}
	return paths
}
