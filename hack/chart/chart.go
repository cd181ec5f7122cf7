package main

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// name is that of the chart, and namespace the one that config/ installs into.
const (
	name      = "berg-operator"
	namespace = "berg-operator-system"
	manager   = "manager"
	// recordNamespace is the default of RECORD_NAMESPACE.
	recordNamespace = "berg-records"
)

//go:embed all:static
var static embed.FS

// kinds are what a value decides about, beside the families.
var kinds = map[string]string{
	"Namespace":                "createNamespace",
	"CustomResourceDefinition": "crds.enabled",
	"NetworkPolicy":            "networkPolicy.enabled",
}

// order is that of files: what others need comes first.
var order = []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "PriorityClass"}

// chart returns the files of the chart, by path.
func chart(all sources, version string) (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(static, "static", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := static.ReadFile(path)
		files[strings.TrimPrefix(path, "static/")] = string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	defaults, err := all.mark()
	if err != nil {
		return nil, err
	}
	if files["Chart.yaml"], err = chartYAML(all, version, defaults); err != nil {
		return nil, err
	}
	if files["values.yaml"], err = values(all, defaults); err != nil {
		return nil, err
	}
	if files["values.schema.json"], err = schemaOf(all); err != nil {
		return nil, err
	}
	files["templates/_families.tpl"] = familiesTemplate(all)

	for _, id := range sorted(all.full) {
		v := variants{full: all.full[id], families: map[string]node{}}
		base, there := all.base[id]
		v.base = node{base, there}
		for _, f := range all.families {
			object, there := f.objects[id]
			v.families[f.name] = node{object, there}
		}
		with := v.scope()
		if !v.base.there && len(with) == 0 {
			return nil, fmt.Errorf("%s comes with all families and with none of them alone", id)
		}
		text, err := templateOf(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		kind, _, _ := strings.Cut(id, "/")
		var conditions []string
		if with != nil {
			conditions = append(conditions, "("+condition(with)+")")
		}
		if value, ok := kinds[kind]; ok {
			conditions = append(conditions, ".Values."+value)
		}
		file := name
		if len(with) == 1 {
			file = with[0]
		}
		if kind == "CustomResourceDefinition" {
			file += "-crds"
		}
		files["templates/"+file+".yaml"] += guard(conditions, text)
	}
	for _, id := range sorted(all.prometheus) {
		text, err := templateOf(variants{full: all.prometheus[id], base: node{all.prometheus[id], true}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		conditions := []string{".Values.prometheus.enabled"}
		for _, f := range all.families {
			for rules := range f.rules {
				kind, _, _ := strings.Cut(rules, "/")
				if strings.HasPrefix(id, kind+"/") && strings.HasSuffix(id, "-"+rules[strings.LastIndex(rules, "/")+1:]) {
					conditions = append(conditions, ".Values.families."+f.name)
				}
			}
		}
		files["templates/prometheus.yaml"] += guard(conditions, text)
	}
	for _, f := range all.families {
		for kind, rights := range f.optionalRights {
			for _, id := range sorted(rights) {
				text, err := templateOf(variants{full: rights[id], base: node{rights[id], true}})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", id, err)
				}
				files["templates/"+f.name+"-"+kind+".yaml"] += guard([]string{".Values.families." + f.name, ".Values.rights." + kind}, text)
			}
		}
	}
	for path := range files {
		if strings.HasPrefix(path, "templates/") && strings.HasSuffix(path, ".yaml") {
			files[path] = "{{- /* Written by `make chart` from config/. */}}\n" + files[path]
		}
	}
	return files, nil
}

// guard is a document that is there under some conditions; none: always.
func guard(conditions []string, text string) string {
	switch len(conditions) {
	case 0:
		return "---\n" + text
	case 1:
		return "{{- if " + strings.Trim(conditions[0], "()") + " }}\n---\n" + text + "{{- end }}\n"
	default:
		return "{{- if and " + strings.Join(conditions, " ") + " }}\n---\n" + text + "{{- end }}\n"
	}
}

func sorted(all objects) []string {
	rank := func(id string) int {
		kind, _, _ := strings.Cut(id, "/")
		if at := slices.Index(order, kind); at >= 0 {
			return at
		}
		return len(order)
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		if n := rank(a) - rank(b); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
}

// defaults are what config/ says where the chart has a value.
type defaults struct {
	image string
	// pod are those of fields of the pods, by the name of the value; nil where there is none.
	pod      map[string]any
	replicas any
}

// podValues are the values that are fields of a pod, by the field.
var podValues = map[string]string{
	"imagePullSecrets": "imagePullSecrets", "nodeSelector": "nodeSelector", "affinity": "affinity", "tolerations": "tolerations",
	"topologySpreadConstraints": "topologySpreadConstraints",
}

// mark puts marks into all variants where the chart has values, and returns what was there.
func (all *sources) mark() (defaults, error) {
	var d defaults
	settings := map[string]string{}
	for _, s := range all.process.Settings {
		settings[s.Name] = s.Default
	}
	for _, f := range all.families {
		for _, s := range f.settings.Settings {
			settings[s.Name] = s.Default
		}
	}
	variants := []objects{all.full, all.base, all.prometheus}
	for _, f := range all.families {
		variants = append(variants, f.objects)
		variants = append(variants, slices.Collect(maps.Values(f.optionalRights))...)
	}
	for _, variant := range variants {
		for id, object := range variant {
			kind, _, _ := strings.Cut(id, "/")
			switch kind {
			case "CustomResourceDefinition":
				child(object, "metadata", "annotations")[keepMark] = ""
				continue // its texts may speak of the namespace
			case "Deployment":
				found, err := markDeployment(object, settings)
				if err != nil {
					return d, err
				}
				d = found // the last is as good as the first: they differ by environment and files alone
			case "ServiceMonitor", "PrometheusRule":
				child(object, "metadata", "labels")[moreMark("prometheus.labels")] = ""
			}
			variant[id], _ = marked(object).(map[string]any)
		}
	}
	if d.image == "" {
		return d, fmt.Errorf("config/ has no Deployment of a container %s", manager)
	}
	return d, nil
}

func markDeployment(object map[string]any, settings map[string]string) (defaults, error) {
	d := defaults{pod: map[string]any{}}
	spec := child(object, "spec")
	d.replicas, spec["replicas"] = spec["replicas"], exprMark(".Values.replicas")
	template := child(spec, "template")
	child(template, "metadata", "labels")[moreMark("podLabels")] = ""
	child(template, "metadata", "annotations")[moreMark("podAnnotations")] = ""
	pod := child(template, "spec")
	for field, value := range podValues {
		d.pod[value], pod[field] = pod[field], valueMark(value)
	}
	more(pod, "volumes", "extraVolumes")
	containers, _ := pod["containers"].([]any)
	for _, item := range containers {
		container, _ := item.(map[string]any)
		if container["name"] != manager {
			continue
		}
		d.image, _ = container["image"].(string)
		container["image"] = exprMark(`include "berg-operator.image" .`)
		d.pod["pullPolicy"], container["imagePullPolicy"] = container["imagePullPolicy"], exprMark(".Values.image.pullPolicy")
		d.pod["resources"], container["resources"] = container["resources"], valueMark("resources")
		more(container, "volumeMounts", "extraVolumeMounts")
		env, _ := container["env"].([]any)
		for _, item := range env {
			variable, _ := item.(map[string]any)
			key, _ := variable["name"].(string)
			value, isText := variable["value"].(string)
			if fallback, known := settings[key]; known && isText {
				if value != fallback && key != enabledAPIs {
					return d, fmt.Errorf("config/ sets %s=%q, and its default is %q", key, value, fallback)
				}
				variable["value"] = settingMark(key)
				if key == enabledAPIs {
					variable["value"] = exprMark(`include "berg-operator.enabledAPIs" . | quote`)
				}
			}
		}
		more(container, "env", "extraEnv")
	}
	return d, nil
}

// more adds the items of a value to a list, which may be absent.
func more(parent map[string]any, field, value string) {
	if list, there := parent[field].([]any); there {
		parent[field] = append(list, moreMark(value))
		return
	}
	parent[field] = []any{moreMark(value)}
}

// child returns a field below some others, and makes those that are absent.
func child(fields map[string]any, path ...string) map[string]any {
	for _, key := range path {
		next, ok := fields[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			fields[key] = next
		}
		fields = next
	}
	return fields
}

// marked returns a part of an object with the marks of namespaces where their names are.
func marked(part any) any {
	switch part := part.(type) {
	case string:
		return strings.ReplaceAll(strings.ReplaceAll(part, namespace, namespaceMark), recordNamespace, recordMark)
	case []any:
		for i, item := range part {
			part[i] = marked(item)
		}
	case map[string]any:
		for key, field := range part {
			part[key] = marked(field)
		}
	}
	return part
}

func chartYAML(all sources, version string, d defaults) (string, error) {
	const home = "https://github.com/bergctf/berg-operator"
	var apis []string
	for _, f := range all.families {
		apis = append(apis, f.api)
	}
	_, tag := imageOf(d.image)
	text, err := yaml.Marshal(map[string]any{
		"apiVersion":  "v2",
		"name":        name,
		"type":        "application",
		"version":     version,
		"appVersion":  tag,
		"kubeVersion": ">=1.33.0-0",
		"description": "Runs CTF challenges: one isolated copy for each player or team, with its own flag, ended on time, nothing left behind.",
		"keywords":    append([]string{"ctf", "operator"}, apis...),
		"home":        home,
		"sources":     []string{home},
		"icon":        "https://raw.githubusercontent.com/bergctf/berg-operator/v" + version + "/config/manifests/icon.svg",
	})
	return "# Written by `make chart`.\n" + string(text), err
}

func imageOf(reference string) (repository, tag string) {
	at := strings.LastIndex(reference, ":")
	return reference[:at], reference[at+1:]
}

// familiesTemplate is what names the groups of the families that are wanted.
func familiesTemplate(all sources) string {
	var b strings.Builder
	b.WriteString("{{- /* Written by `make chart`. */}}\n")
	b.WriteString("{{- define \"berg-operator.enabledAPIs\" -}}\n{{- $apis := list -}}\n")
	for _, f := range all.families {
		fmt.Fprintf(&b, "{{- if .Values.families.%s }}{{ $apis = append $apis %q }}{{ end -}}\n", f.name, f.api)
	}
	b.WriteString("{{- if not $apis }}{{ fail \"families: at least one must be true\" }}{{ end -}}\n")
	fmt.Fprintf(&b, "{{- if lt (len $apis) %d }}{{ join \",\" $apis }}{{ end -}}\n{{- end }}\n", len(all.families))
	return b.String()
}
