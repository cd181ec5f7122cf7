package main

import (
	"fmt"
	"strings"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

const (
	// apiContainer is the container of the platform API in its Deployment.
	apiContainer = "api"
	// platformNamespaces is the setting that the value api.platformNamespaces sets.
	platformNamespaces = "PLATFORM_NAMESPACE"
)

// apiTemplate returns the template of the platform API, which is installed beside the operator. The objects in the
// namespace of a platform are there for each of them.
func apiTemplate(all sources) (string, error) {
	var out strings.Builder
	for _, id := range sorted(all.api) {
		text, err := wholeTemplate(all.api, id)
		if err != nil {
			return "", err
		}
		conditions := []string{".Values.families.berg", ".Values.api.enabled"}
		if kind, _, _ := strings.Cut(id, "/"); kinds[kind] != "" {
			conditions = append(conditions, ".Values."+kinds[kind])
		}
		if isOfPlatform(id) {
			text = strings.NewReplacer(".Release.", "$.Release.", `"berg-operator.labels" .`, `"berg-operator.labels" $`,
				`"berg-operator.otherLabels" (list .`, `"berg-operator.otherLabels" (list $`).Replace(text)
			out.WriteString("{{- if and " + strings.Join(conditions, " ") + " }}\n{{- range .Values.api.platformNamespaces }}\n---\n" + text + "{{- end }}\n{{- end }}\n")
			continue
		}
		out.WriteString(guard(conditions, text))
	}
	return out.String(), nil
}

// isOfPlatform reports whether an object of the API is in the namespace of a platform, and not in the operator's.
func isOfPlatform(id string) bool {
	parts := strings.SplitN(id, "/", 3)
	return parts[1] != "<nil>" && parts[1] != namespace && parts[1] != namespacePlaceholder
}

// insertIntoAPI puts placeholders into the objects of the API, and returns its image and resources.
func (all *sources) insertIntoAPI() (defaults, error) {
	d := defaults{pod: map[string]any{}}
	for id, object := range all.api {
		insertLabels(object)
		if strings.HasPrefix(id, "Deployment/") {
			spec := child(object, "spec")
			d.replicas, spec["replicas"] = spec["replicas"], exprPlaceholder(".Values.api.replicas")
			pod := child(spec, "template", "spec")
			for field, value := range podValues {
				if field != "topologySpreadConstraints" {
					pod[field] = valuePlaceholder(value)
				}
			}
			pod["priorityClassName"] = exprPlaceholder(`include "berg-operator.priorityClass" .`)
			pod["dnsPolicy"] = dnsPolicy
			containers, _ := pod["containers"].([]any)
			for _, item := range containers {
				if container, _ := item.(map[string]any); container["name"] == apiContainer {
					d.image, _ = container["image"].(string)
					container["image"] = exprPlaceholder(`include "berg-operator.apiImage" .`)
					container["imagePullPolicy"] = exprPlaceholder(".Values.image.pullPolicy")
					d.pod["resources"], container["resources"] = container["resources"], valuePlaceholder("api.resources")
					container["env"] = apiVariables(container["env"], all.apiSettings)
					more(container, "volumeMounts", "api.extraVolumeMounts")
				}
			}
			more(pod, "volumes", "api.extraVolumes")
		}
		if strings.HasPrefix(id, "Role/") && !isOfPlatform(id) {
			nameTokens(object)
		}
		if isOfPlatform(id) {
			child(object, "metadata")["namespace"] = exprPlaceholder(". | quote")
		}
		all.api[id], _ = withPlaceholders(object).(map[string]any)
	}
	if d.image == "" {
		return d, fmt.Errorf("config/berg/api has no Deployment of a container %s", apiContainer)
	}
	return d, nil
}

// nameTokens lets the Role read the Secret that the setting names.
func nameTokens(role map[string]any) {
	rules, _ := role["rules"].([]any)
	for _, item := range rules {
		if rule, _ := item.(map[string]any); fmt.Sprint(rule["resources"]) == "[secrets]" {
			rule["resourceNames"] = []any{exprPlaceholder(`include "berg-operator.apiSetting" (list . "TOKEN_SECRET")`)}
		}
	}
}

// apiVariables returns the variables of config/berg/api, with a value of the chart for each setting.
func apiVariables(given any, section settings.Section) []any {
	var out []any
	list, _ := given.([]any)
	for _, item := range list {
		if variable, _ := item.(map[string]any); variable["valueFrom"] != nil {
			out = append(out, variable)
		}
	}
	out = append(out, map[string]any{"name": platformNamespaces, "value": exprPlaceholder(`join "," .Values.api.platformNamespaces | quote`)})
	for _, s := range section.Settings {
		if isAPIValue(s) {
			out = append(out, map[string]any{"name": s.Name, "value": exprPlaceholder(fmt.Sprintf(`include "berg-operator.apiSetting" (list . %q)`, s.Name))})
		}
		if isOfOperator(s) {
			out = append(out, map[string]any{"name": s.Name, "value": settingPlaceholder(s.Name)})
		}
	}
	return out
}

// isOfOperator reports whether a setting of the API is that of the operator, and has its value.
func isOfOperator(s settings.Setting) bool { return strings.HasPrefix(s.Name, "CHALLENGE_") }

// isAPIValue reports whether api.settings has a setting. The addresses are those of the Service and the probes, and api.enabled
// says whether there is an API.
func isAPIValue(s settings.Setting) bool {
	if isOfOperator(s) {
		return false
	}
	switch s.Name {
	case podNamespace, platformNamespaces, "PLATFORM_API", "BIND_ADDRESS", "METRICS_BIND_ADDRESS":
		return false
	}
	return true
}

// apiValues returns the part of values.yaml about the API.
func apiValues(section settings.Section, d defaults) (string, error) {
	var b strings.Builder
	repository, _ := imageOf(d.image)
	fmt.Fprintf(&b, `
# The platform API, for CTFd, rCTF and others: see docs/platforms.md. Create the Secret with its tokens first.
api:
  enabled: false
  replicas: %v
  # Namespaces that have Challenges and instances of platforms. They must exist.
  platformNamespaces: [berg]
  image:
    repository: %s
    # Default: the version of the chart.
    tag: ""
    # For example sha256:...; it replaces the tag.
    digest: ""
`, d.replicas, repository)
	var resources strings.Builder
	if err := podValue(&resources, "resources", "", d.pod["resources"]); err != nil {
		return "", err
	}
	for line := range strings.Lines(strings.TrimLeft(resources.String(), "\n")) {
		b.WriteString("  " + line)
	}
	b.WriteString("  # For the certificate in CERT_DIR.\n  extraVolumes: []\n  extraVolumeMounts: []\n  settings:\n")
	for _, s := range section.Settings {
		if isAPIValue(s) {
			settingValue(&b, "    ", s)
		}
	}
	return b.String(), nil
}

// apiSchema is the schema of the values of the API.
func apiSchema(section settings.Section, image object) object {
	schemas := object{}
	for _, s := range section.Settings {
		if isAPIValue(s) {
			schemas[s.Name] = settingSchema(s)
		}
	}
	return withSections(closed(object{
		"enabled":            object{"type": "boolean"},
		"replicas":           replicas,
		"platformNamespaces": object{"type": "array", "minItems": 1, "uniqueItems": true, "items": object{"type": "string", "minLength": 1}},
		"image":              image,
		"resources":          object{"type": "object"},
		"extraVolumes":       object{"type": "array", "items": object{"type": "object"}},
		"extraVolumeMounts":  object{"type": "array", "items": object{"type": "object"}},
		"settings":           closed(schemas),
	}))
}
