package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Settings that are no values: families decides about the first, and Kubernetes tells the second.
const (
	enabledAPIs  = "ENABLED_APIS"
	podNamespace = "POD_NAMESPACE"
)

// sections are the tables of settings that are values.
func (all *sources) sections() []settings.Section {
	var sections []settings.Section
	for _, f := range all.families {
		if len(f.settings.Settings) > 0 {
			sections = append(sections, f.settings)
		}
	}
	return append(sections, all.process)
}

// apart are the Kinds with rights of their own, of all families.
func (all *sources) optionalRights() []string {
	kinds := map[string]bool{}
	for _, f := range all.families {
		for kind := range f.optionalRights {
			kinds[kind] = true
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

func isValue(s settings.Setting) bool { return s.Name != enabledAPIs && s.Name != podNamespace }

// values returns values.yaml: every value, with its default and what it does.
func values(all sources, d defaults) (string, error) {
	var b strings.Builder
	b.WriteString(`# Written by ` + "`make chart`" + `: every value, with its default.

# Families of APIs. One that is false gets no definitions, no rights and no settings. Delete its
# resources before you turn it off.
families:
`)
	for _, f := range all.families {
		title, _, _ := strings.Cut(f.settings.Title, " (")
		if title == "" {
			title = f.name
		}
		fmt.Fprintf(&b, "  # %s (%s)\n  %s: true\n", title, f.api, f.name)
	}
	b.WriteString(`
# Settings, by the names of docs/settings.md. Those of a family that is false do nothing. An empty
# text stands for the default. Lists may also be written as lists of YAML.
settings:
`)
	for i, section := range all.sections() {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "  ## %s\n", section.Title)
		for _, s := range section.Settings {
			if !isValue(s) {
				continue
			}
			comment(&b, "  ", s.Help)
			value := fmt.Sprintf("%q", s.Default)
			if t := s.Value.Form().Type; t == settings.Boolean || t == settings.Integer {
				value = s.Default
			}
			fmt.Fprintf(&b, "  %s: %s\n", s.Name, value)
		}
	}
	b.WriteString(`
# Rights that the operator needs only with some settings, which say so: without them it does not
# start with these.
rights:
`)
	for _, kind := range all.optionalRights() {
		fmt.Fprintf(&b, "  %s: false\n", kind)
	}
	repository, _ := imageOf(d.image)
	fmt.Fprintf(&b, `
image:
  repository: %s
  # Empty: the version of the chart.
  tag: ""
  # As in sha256:...; it counts in place of the tag.
  digest: ""
  pullPolicy: %v

# How many pods: one works, the others can take over.
replicas: %v
`, repository, d.pod["pullPolicy"], d.replicas)
	for _, field := range []struct{ name, help string }{
		{"resources", "Of the operator's pods. No processor limit: throttled, the operator would end instances late."},
		{"imagePullSecrets", "Secrets for the operator's image, as in [{name: registry}]."},
		{"nodeSelector", ""},
		{"affinity", ""},
		{"tolerations", ""},
		{"topologySpreadConstraints", ""},
	} {
		if err := podValue(&b, field.name, field.help, d.pod[field.name]); err != nil {
			return "", err
		}
	}
	b.WriteString(`
podLabels: {}

podAnnotations: {}

# Further variables, volumes and mounts of the operator: for the files that settings name, such as
# KAFKA_CA_FILE.
extraEnv: []
extraVolumes: []
extraVolumeMounts: []

networkPolicy:
  # Policies that let the operator reach what it needs, and nothing else.
  enabled: true

crds:
  # false: somebody else installs the definitions.
  enabled: true
  # Whether definitions stay when the release is removed, and with them every resource.
  keep: true

prometheus:
  # For clusters with the Prometheus operator: a ServiceMonitor, alerts, and the right to scrape.
  enabled: false
  # Labels that your Prometheus selects by, as in {release: kube-prometheus-stack}.
  labels: {}

# Whether the namespace is an object of the chart. Only for tools that apply what helm template
# prints; with helm itself, use --create-namespace.
createNamespace: false
`)
	return b.String(), nil
}

// podValue writes a value that is a field of the pods, with what config/ has there.
func podValue(b *strings.Builder, name, help string, value any) error {
	b.WriteString("\n")
	if help != "" {
		comment(b, "", help)
	}
	if value == nil {
		value = map[string]any{}
		if name == "imagePullSecrets" {
			value = []any{}
		}
	}
	text, err := yaml.Marshal(map[string]any{name: value})
	b.Write(text)
	return err
}

// comment writes a text in lines of at most 100 characters.
func comment(b *strings.Builder, indent, text string) {
	line := indent + "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 100 && line != indent+"#" {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

type object = map[string]any

// schemaOf returns values.schema.json.
func schemaOf(all sources) (string, error) {
	families, known, rights := object{}, object{}, object{}
	for _, kind := range all.optionalRights() {
		rights[kind] = object{"type": "boolean"}
	}
	for _, f := range all.families {
		families[f.name] = object{"type": "boolean", "description": f.api}
	}
	for _, section := range all.sections() {
		for _, s := range section.Settings {
			if isValue(s) {
				known[s.Name] = settingSchema(s)
			}
		}
	}
	list := func(items object) object { return object{"type": "array", "items": items} }
	anything := object{"type": "object"}
	texts := object{"type": "object", "additionalProperties": object{"type": "string"}}
	boolean := object{"type": "boolean"}
	text, err := json.MarshalIndent(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Values of " + name,
		"type":    "object",
		"properties": object{
			// Helm passes it to every chart that another one contains.
			"global":   anything,
			"families": closed(families),
			"settings": closed(known),
			"rights":   closed(rights),
			"image": closed(object{
				"repository": object{"type": "string", "minLength": 1},
				"tag":        object{"type": "string"},
				"digest":     object{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
				"pullPolicy": object{"enum": []string{"Always", "IfNotPresent", "Never"}},
			}),
			"replicas":                  object{"type": "integer", "minimum": 0},
			"resources":                 anything,
			"imagePullSecrets":          list(closed(object{"name": object{"type": "string"}})),
			"nodeSelector":              texts,
			"affinity":                  anything,
			"tolerations":               list(anything),
			"topologySpreadConstraints": list(anything),
			"podLabels":                 texts,
			"podAnnotations":            texts,
			"extraEnv":                  list(anything),
			"extraVolumes":              list(anything),
			"extraVolumeMounts":         list(anything),
			"networkPolicy":             closed(object{"enabled": boolean}),
			"crds":                      closed(object{"enabled": boolean, "keep": boolean}),
			"prometheus":                closed(object{"enabled": boolean, "labels": texts}),
			"createNamespace":           boolean,
		},
		"additionalProperties": false,
	}, "", "  ")
	return string(text) + "\n", err
}

func closed(properties object) object {
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

func settingSchema(s settings.Setting) object {
	form := s.Value.Form()
	schema := object{"description": s.Help, "default": s.Default}
	switch form.Type {
	case settings.Boolean:
		schema["type"], schema["default"] = "boolean", s.Default == "true"
	case settings.Integer:
		schema["type"], schema["minimum"], schema["maximum"] = "integer", form.Minimum, form.Maximum
		schema["default"] = json.Number(s.Default)
	case settings.Quantity:
		schema["type"] = []string{"string", "number"}
	case settings.List:
		schema["type"], schema["items"] = []string{"string", "array"}, object{"type": "string"}
	default:
		schema["type"] = "string"
	}
	if form.Pattern != "" {
		schema["pattern"] = "^$|" + form.Pattern
	}
	if form.Enum != nil {
		schema["enum"] = append([]string{""}, form.Enum...)
	}
	return schema
}
