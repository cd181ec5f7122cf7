// Settings copies the tables of settings to where other programs read them: names and defaults into kubectl-berg, which may not
// import the operator so that it stays small, all names into the programs that share a ConfigMap, and names, defaults, descriptions and forms into the values of the Helm chart.
//
//	go run ./hack/settings
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/gate"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/platform/server"
)

const chart = "deploy/helm/berg-operator"

func main() {
	files, err := generate(".")
	for path, text := range files {
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a file of the repository
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "settings:", err)
		os.Exit(1)
	}
}

// generate returns the files that contain settings, by path below the root of the repository.
func generate(root string) (map[string]string, error) {
	plugin, err := pluginDefaults()
	if err != nil {
		return nil, err
	}
	shared, err := sharedNames()
	if err != nil {
		return nil, err
	}
	groups, err := chartGroups(root)
	if err != nil {
		return nil, err
	}
	names, err := yaml.Marshal(settingNames(groups))
	if err != nil {
		return nil, err
	}
	values, err := os.ReadFile(filepath.Join(root, chart, "values.yaml"))
	if err != nil {
		return nil, err
	}
	text, operators := string(values), len(groups)-len(programs)
	if text, err = replaceBlock(text, "settings", valueLines("  ", groups[:operators])); err != nil {
		return nil, err
	}
	for _, g := range groups[operators:] {
		if text, err = replaceBlock(text, g.name+".settings", valueLines("    ", []group{g})); err != nil {
			return nil, err
		}
	}
	schema, err := os.ReadFile(filepath.Join(root, chart, "values.schema.json"))
	if err != nil {
		return nil, err
	}
	withSettings, err := replaceSchemas(schema, groups)
	return map[string]string{
		"cmd/kubectl-berg/doctor/zz_generated.defaults.go": plugin,
		"internal/kit/settings/zz_generated.names.go":      shared,
		filepath.Join(chart, "files", "settings.yaml"):     "# Copied by `make chart` from the tables of settings.\n" + string(names),
		filepath.Join(chart, "values.yaml"):                text,
		filepath.Join(chart, "values.schema.json"):         withSettings,
	}, err
}

// group is a part of the settings for which the chart has values.
type group struct {
	// name is the family in the chart's values, operator, or one of programs.
	name, title string
	settings    []settings.Setting
}

// programs are the other programs of the chart, which have settings of their own.
var programs = []string{"api", "gate"}

// notValues are settings without a value: families sets the first, Kubernetes the second, Roles name the Lease and the Deployment, Services
// and probes the addresses and ports, the GatewayClass the controller, the operator's setting the namespace of the Gateway, and other values
// of api and gate the others.
var notValues = map[string][]string{
	"operator": {"ENABLED_APIS", "POD_NAMESPACE", "LEASE_NAME"},
	"api":      {"POD_NAMESPACE", "PLATFORM_NAMESPACE", "PLATFORM_API", "BIND_ADDRESS", "METRICS_BIND_ADDRESS", "OPERATOR_DEPLOYMENT", "LEASE_NAME", "GATE_ADDRESS"},
	"gate": {
		"GATE_ENABLED", "GATE_CONTROLLER", "GATE_PORTS", "GATE_PORT_OFFSET", "GATE_BIND_HOST", "GATE_SERVICES",
		"ADMIN_BIND_ADDRESS", "LEADER_ELECTION", "LEASE_NAME", "POD_NAMESPACE", "GATEWAY_NAMESPACE",
	},
}

// chartGroups returns the groups in the order of values.yaml. The last ones are those of programs.
func chartGroups(root string) ([]group, error) {
	var groups []group
	var apis []string
	for _, f := range families.All() {
		crds, err := filepath.Glob(filepath.Join(root, "config", "*", "crd", "bases", f.API+"_*.yaml"))
		if err != nil || len(crds) == 0 {
			return nil, fmt.Errorf("config/ has no CRD of %s: %w", f.API, err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(crds[0], filepath.Join(root, "config")+"/"), "/")
		apis = append(apis, f.API)
		groups = append(groups, group{name, f.Settings.Title, f.Settings.Settings})
	}
	process := new(config.Process).Section(slices.Sorted(slices.Values(apis)))
	groups = append(groups, group{"operator", process.Title, process.Settings},
		group{"api", "", new(server.Config).Section().Settings}, group{"gate", "", new(gate.Config).Section().Settings})
	for i, g := range groups {
		groups[i].settings = slices.DeleteFunc(slices.Clone(g.settings), func(s settings.Setting) bool {
			return slices.Contains(notValues[g.name], s.Name)
		})
	}
	return groups, nil
}

func settingNames(groups []group) map[string][]string {
	names := map[string][]string{}
	for _, g := range groups {
		for _, s := range g.settings {
			names[g.name] = append(names[g.name], s.Name)
		}
	}
	return names
}

// replaceBlock replaces the lines between two comments of values.yaml.
func replaceBlock(text, name, lines string) (string, error) {
	block := regexp.MustCompile(`(?s)(# Begin of ` + regexp.QuoteMeta(name) + `[^\n]*\n).*?( *# End of ` + regexp.QuoteMeta(name) + `\n)`)
	if !block.MatchString(text) {
		return "", fmt.Errorf("%s/values.yaml has no comments around %s", chart, name)
	}
	return block.ReplaceAllStringFunc(text, func(found string) string {
		parts := block.FindStringSubmatch(found)
		return parts[1] + lines + parts[2]
	}), nil
}

// valueLines returns the values of settings, each with its description.
func valueLines(indent string, groups []group) string {
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteString("\n")
		}
		if g.title != "" {
			fmt.Fprintf(&b, "%s## %s\n", indent, g.title)
		}
		for _, s := range g.settings {
			b.WriteString(comment(indent, s.Help))
			value := fmt.Sprintf("%q", s.Default)
			if t := s.Value.Form().Type; t == settings.Boolean || t == settings.Integer {
				value = s.Default
			}
			fmt.Fprintf(&b, "%s%s: %s\n", indent, s.Name, value)
		}
	}
	return b.String()
}

// comment returns a text in lines of at most 100 characters.
func comment(indent, text string) string {
	var b strings.Builder
	line := indent + "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > 100 && line != indent+"#" {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

type object = map[string]any

// replaceSchemas replaces the schemas of settings in that of the values.
func replaceSchemas(text []byte, groups []group) (string, error) {
	var schema object
	if err := json.Unmarshal(text, &schema); err != nil {
		return "", err
	}
	properties := map[string]object{}
	for _, g := range groups {
		path := "properties.settings"
		if slices.Contains(programs, g.name) {
			path = "properties." + g.name + ".properties.settings"
		}
		if properties[path] == nil {
			properties[path] = object{}
		}
		for _, s := range g.settings {
			properties[path][s.Name] = settingSchema(s)
		}
	}
	for path, fields := range properties {
		parent := schema
		for key := range strings.SplitSeq(path, ".") {
			parent, _ = parent[key].(object)
		}
		if parent == nil {
			return "", fmt.Errorf("%s/values.schema.json has no %s", chart, path)
		}
		parent["properties"] = fields
	}
	written, err := json.MarshalIndent(schema, "", "  ")
	return string(written) + "\n", err
}

func settingSchema(s settings.Setting) object {
	form := s.Value.Form()
	schema := object{"description": s.Help, "default": s.Default}
	switch form.Type {
	// Argo CD's forceString and helm's --set-string quote numbers and booleans.
	case settings.Boolean:
		schema["type"], schema["enum"], schema["default"] = []string{"boolean", "string"}, []any{true, false, "true", "false", ""}, s.Default == "true"
	case settings.Integer:
		schema["type"], schema["minimum"], schema["maximum"] = []string{"integer", "string"}, form.Minimum, form.Maximum
		schema["pattern"], schema["default"] = "^-?[0-9]*$", json.Number(s.Default)
	case settings.Quantity:
		schema["type"] = []string{"string", "number"}
	case settings.List:
		items := object{"type": "string"}
		if form.Pattern != "" {
			items["pattern"] = form.Pattern
		}
		schema["type"], schema["items"] = []string{"string", "array"}, items
	default:
		schema["type"] = "string"
	}
	if form.Pattern != "" {
		schema["pattern"] = "^$|" + form.Pattern
	}
	if form.Enum != nil {
		enum := []any{""}
		for _, text := range form.Enum {
			enum = append(enum, text)
			if text == "true" || text == "false" { // which YAML takes for a boolean
				schema["type"], enum = []string{"boolean", "string"}, append(enum, text == "true")
			}
		}
		schema["enum"] = enum
	}
	return schema
}
