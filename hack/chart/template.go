package main

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// node is a part of an object in one of the variants.
type node struct {
	value  any
	exists bool
}

// variants are a part of an object with all families, with none, and with each single family.
type variants struct {
	full     any
	base     node
	families map[string]node
}

// templateOf returns the template of an object. Parts that exist only with some families are in conditions.
// It fails if a value differs between families.
func templateOf(v variants) (string, error) {
	var w writer
	fields, ok := v.full.(map[string]any)
	if !ok {
		return "", fmt.Errorf("%v is not an object", v.full)
	}
	if err := w.fields("", 0, fields, v, v.scope()); err != nil {
		return "", err
	}
	return fill(w.text.String()), nil
}

// scope returns the families with which the part exists, nil for all.
func (v variants) scope() []string {
	if v.base.exists {
		return nil
	}
	with := []string{}
	for name, n := range v.families {
		if n.exists {
			with = append(with, name)
		}
	}
	slices.Sort(with)
	return with
}

// settled reports whether the part is equal in all variants that have it.
func (v variants) settled() bool {
	if v.base.exists && !reflect.DeepEqual(v.base.value, v.full) {
		return false
	}
	for _, n := range v.families {
		if n.exists && !reflect.DeepEqual(n.value, v.full) {
			return false
		}
	}
	return true
}

// part returns a part of each variant. find returns the part of one variant.
func (v variants) part(full any, find func(any) (any, bool)) variants {
	of := func(n node) node {
		if !n.exists {
			return node{}
		}
		value, exists := find(n.value)
		return node{value, exists}
	}
	p := variants{full: full, base: of(v.base), families: map[string]node{}}
	for name, n := range v.families {
		p.families[name] = of(n)
	}
	return p
}

type writer struct {
	text strings.Builder
	// end is the length of the text at the end of the last condition, ended that condition.
	end   int
	ended string
}

const endLine = "{{- end }}\n"

// guarded writes a part in a condition, unless the part exists whenever its parent does.
func (w *writer) guarded(path string, v variants, scope []string, part func(scope []string) error) error {
	with := v.scope()
	switch {
	case with == nil:
		return part(nil)
	case len(with) == 0:
		return fmt.Errorf("%s exists with all families, but with no single one", path)
	case slices.Equal(with, scope):
		return part(with)
	}
	if text := w.text.String(); w.ended == condition(with) && w.end == len(text) {
		w.reset(strings.TrimSuffix(text, endLine)) // consecutive parts with the same condition share it
	} else {
		fmt.Fprintf(&w.text, "{{- if %s }}\n", condition(with))
	}
	if err := part(with); err != nil {
		return err
	}
	w.text.WriteString(endLine)
	w.end, w.ended = w.text.Len(), condition(with)
	return nil
}

func (w *writer) reset(text string) {
	w.text.Reset()
	w.text.WriteString(text)
}

// condition returns the condition that one of some families is enabled.
func condition(families []string) string {
	if len(families) == 1 {
		return ".Values.families." + families[0]
	}
	return "or .Values.families." + strings.Join(families, " .Values.families.")
}

func (w *writer) fields(path string, indent int, full map[string]any, v variants, scope []string) error {
	keys := slices.Sorted(maps.Keys(full))
	if at := slices.Index(keys, "name"); at >= 0 { // the name of an item comes first and always exists
		keys = append([]string{"name"}, slices.Delete(keys, at, at+1)...)
	}
	for _, key := range keys {
		p := v.part(full[key], func(parent any) (any, bool) {
			fields, _ := parent.(map[string]any)
			value, exists := fields[key]
			return value, exists
		})
		here := path + "." + key
		if err := w.guarded(here, p, scope, func(scope []string) error {
			return w.field(here, key, indent, p, scope)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) field(path, key string, indent int, v variants, scope []string) error {
	if v.settled() {
		return w.plain(indent, map[string]any{key: v.full})
	}
	switch full := v.full.(type) {
	case map[string]any:
		fmt.Fprintf(&w.text, "%s%s:\n", spaces(indent), key)
		return w.fields(path, indent+2, full, v, scope)
	case []any:
		fmt.Fprintf(&w.text, "%s%s:\n", spaces(indent), key)
		return w.items(path, indent, full, v, scope)
	}
	return fmt.Errorf("%s is %v with all families, but differs with some of them: the chart does not support that", path, v.full)
}

func (w *writer) items(path string, indent int, full []any, v variants, scope []string) error {
	for _, item := range full {
		p := v.part(item, func(parent any) (any, bool) {
			list, _ := parent.([]any)
			at := slices.IndexFunc(list, func(other any) bool { return same(item, other) })
			if at < 0 {
				return nil, false
			}
			return list[at], true
		})
		here := fmt.Sprintf("%s[%v]", path, nameOf(item))
		if err := w.guarded(here, p, scope, func(scope []string) error {
			if p.settled() {
				return w.plain(indent, []any{item})
			}
			fields, ok := item.(map[string]any)
			if !ok || nameOf(item) == nil {
				return fmt.Errorf("%s differs between families, which the chart does not support", here)
			}
			before := w.text.Len()
			if err := w.fields(here, indent+2, fields, p, scope); err != nil {
				return err
			}
			text := w.text.String()
			w.reset(text[:before] + spaces(indent) + "- " + text[before+indent+2:])
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether two items of lists are variants of one item.
func same(a, b any) bool {
	if name := nameOf(a); name != nil {
		return name == nameOf(b)
	}
	return reflect.DeepEqual(a, b)
}

func nameOf(item any) any {
	fields, _ := item.(map[string]any)
	return fields["name"]
}

func (w *writer) plain(indent int, value any) error {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err
	}
	// Text that looks like a template, as in alerts, is not one.
	for line := range strings.Lines(strings.ReplaceAll(string(text), "{{", `{{ "{{" }}`)) {
		if strings.TrimSpace(line) != "" {
			line = spaces(indent) + line
		}
		w.text.WriteString(line)
	}
	return nil
}

func spaces(n int) string { return strings.Repeat(" ", n) }

// Placeholders are in objects where the chart has a value. YAML quotes text that begins with @.
const (
	namespacePlaceholder = "@@namespace@@"
	recordsPlaceholder   = "@@records@@"
	fullnamePlaceholder  = "@@fullname@@"
	accountPlaceholder   = "@@account@@"
	keepPlaceholder      = "@@keep@@"
	aggregatePlaceholder = "@@aggregate@@"
	levelPlaceholder     = "@@level@@"
)

// accountPattern is what a pattern of accounts begins with that also knows the one that a value names.
const accountPattern = "@@own account@@^system:serviceaccount:[^:]+:(" + fullnamePlaceholder + "|"

func settingPlaceholder(name string) string { return "@@setting " + name + "@@" }

// exprPlaceholder is for an expression whose value is one word or number.
func exprPlaceholder(expression string) string { return "@@expr " + expression + "@@" }

// valuePlaceholder is for a field that exists if a value is set.
func valuePlaceholder(value string) string { return "@@value " + value + "@@" }

// withPlaceholder is for a field that exists if an expression has a value, which is one word.
func withPlaceholder(expression string) string { return "@@with " + expression + "@@" }

// morePlaceholder is a field or an item that is replaced by the fields or items of a value, without fields that are there.
func morePlaceholder(value string, present ...string) string {
	return "@@more " + strings.Join(append([]string{value}, present...), " ") + "@@"
}

// labelsPrefix begins the placeholder for the labels of every object.
const labelsPrefix = "@@labels"

// everyObject is a word that stands for the labels of every object. YAML writes a placeholder of more than 128 characters in several lines.
const everyObject = "*"

var labelsOfEveryObject = []string{"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"}

// valueOfLabels begins a word that stands for all labels of a value.
const valueOfLabels = ".Values."

// labelsPlaceholder is for the labels of every object, without those that are there.
func labelsPlaceholder(present ...string) string {
	return strings.Join(append([]string{labelsPrefix}, present...), " ") + "@@"
}

var (
	settingLine = regexp.MustCompile(`'@@setting (\w+)@@'`)
	exprLine    = regexp.MustCompile(`'@@expr (.+?)@@'`)
	valueLine   = regexp.MustCompile(`(?m)^( *)(.+): '@@value ([\w.]+)@@'\n`)
	withLine    = regexp.MustCompile(`(?m)^( *)(.+): '@@with (.+)@@'\n`)
	moreLine    = regexp.MustCompile(`(?m)^( *)(?:- )?'@@more ([\w.]+)([^@]*)@@'(?:: "")?\n`)
	keepLine    = regexp.MustCompile(`(?m)^( *)'@@keep@@': ""\n`)
	labelsLine  = regexp.MustCompile(`(?m)^( *)'@@labels([^@]*)@@': ""\n`)
	joinLine    = regexp.MustCompile(`(?m)^( *)'@@aggregate@@': ""\n`)
)

// fill replaces placeholders by values.
func fill(text string) string {
	records := `.Values.settings.RECORD_NAMESPACE | default "` + recordNamespace + `"`
	for placeholder, value := range map[string]string{namespacePlaceholder: ".Release.Namespace", recordsPlaceholder: records} {
		// A name may look like a number and needs quotes. A longer text has its own quotes.
		alone := regexp.MustCompile(`(?m)(: |- )'` + placeholder + `'$`)
		text = alone.ReplaceAllString(text, "${1}{{ "+value+" | quote }}")
		text = strings.ReplaceAll(text, placeholder, "{{ "+value+" }}")
	}
	// Names with a placeholder need no quotes, which YAML puts around a text that begins with one.
	text = regexp.MustCompile(`(?m)(: |- )'((?:`+fullnamePlaceholder+`|`+accountPlaceholder+`)[\w-]*)'$`).ReplaceAllString(text, "$1$2")
	text = strings.ReplaceAll(text, fullnamePlaceholder, `{{ include "berg-operator.fullname" . }}`)
	text = strings.ReplaceAll(text, accountPlaceholder, `{{ include "berg-operator.account" . }}`)
	text = strings.ReplaceAll(text, "'"+levelPlaceholder+"'", `{{ include "berg-operator.podSecurity" . }}`)
	text = strings.ReplaceAll(text, "@@own account@@", `{{ with .Values.serviceAccount.name }}^system:serviceaccount:[^:]+:{{ . }}$|{{ end }}`)
	text = settingLine.ReplaceAllString(text, `{{ include "berg-operator.setting" (list . "$1") }}`)
	text = exprLine.ReplaceAllString(text, `{{ $1 }}`)
	text = keepLine.ReplaceAllString(text, "{{- if .Values.crds.keep }}\n${1}helm.sh/resource-policy: keep\n{{- end }}\n")
	text = joinLine.ReplaceAllString(text, "{{- if .Values.aggregateRoles }}\n${1}rbac.authorization.k8s.io/aggregate-to-admin: \"true\"\n"+
		"${1}rbac.authorization.k8s.io/aggregate-to-edit: \"true\"\n{{- end }}\n")
	text = labelsLine.ReplaceAllStringFunc(text, func(line string) string {
		m := labelsLine.FindStringSubmatch(line)
		if m[2] == "" {
			return fmt.Sprintf("{{- include \"berg-operator.labels\" . | nindent %d }}\n", len(m[1]))
		}
		return fmt.Sprintf("{{- include \"berg-operator.otherLabels\" (list .%s) | nindent %d }}\n", quoted(m[2]), len(m[1]))
	})
	text = withLine.ReplaceAllString(text, "{{- with $3 }}\n$1$2: {{ . }}\n{{- end }}\n")
	text = valueLine.ReplaceAllStringFunc(text, func(line string) string {
		m := valueLine.FindStringSubmatch(line)
		return fmt.Sprintf("{{- with .Values.%s }}\n%s%s: {{- toYaml . | nindent %d }}\n{{- end }}\n", m[3], m[1], m[2], len(m[1])+2)
	})
	return moreLine.ReplaceAllStringFunc(text, func(line string) string {
		m := moreLine.FindStringSubmatch(line)
		value := ".Values." + m[2]
		if m[3] != "" {
			value = "omit (" + value + " | default dict)" + quoted(m[3])
		}
		return fmt.Sprintf("{{- with %s }}\n{{- toYaml . | nindent %d }}\n{{- end }}\n", value, len(m[1]))
	})
}

// quoted returns words as arguments of a function of a template.
func quoted(words string) string {
	var b strings.Builder
	for _, word := range strings.Fields(words) {
		if value, ok := strings.CutPrefix(word, valueOfLabels); ok {
			fmt.Fprintf(&b, " (.Values.%s | default dict)", value)
			continue
		}
		if word == everyObject {
			b.WriteString(quoted(strings.Join(labelsOfEveryObject, " ")))
			continue
		}
		fmt.Fprintf(&b, " %q", word)
	}
	return b.String()
}
