package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// objectOf reads an object from YAML, none from an empty text.
func objectOf(t *testing.T, text string) node {
	t.Helper()
	if text == "" {
		return node{}
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return node{object, true}
}

func variantsOf(t *testing.T, full, base string, families map[string]string) variants {
	t.Helper()
	v := variants{full: objectOf(t, full).value, base: objectOf(t, base), families: map[string]node{}}
	for name, text := range families {
		v.families[name] = objectOf(t, text)
	}
	return v
}

func TestPartsOfFamiliesAreConditional(t *testing.T) {
	for name, c := range map[string]struct {
		full, base string
		families   map[string]string
		want       string
	}{
		"the same in all": {
			full: "{a: 1, b: {c: x}}", base: "{a: 1, b: {c: x}}", families: map[string]string{"one": "{a: 1, b: {c: x}}"},
			want: "a: 1\nb:\n  c: x\n",
		},
		"a field of a family": {
			full: "{a: 1, b: 2}", base: "{a: 1}", families: map[string]string{"one": "{a: 1, b: 2}", "two": "{a: 1}"},
			want: "a: 1\n{{- if .Values.families.one }}\nb: 2\n{{- end }}\n",
		},
		"consecutive fields of a family": {
			full: "{b: 2, c: 3}", base: "{}", families: map[string]string{"one": "{b: 2, c: 3}", "two": "{}"},
			want: "{{- if .Values.families.one }}\nb: 2\nc: 3\n{{- end }}\n",
		},
		"an item of two families": {
			full:     "{items: [{name: a, value: x}, {name: b}]}",
			base:     "{items: [{name: b}]}",
			families: map[string]string{"one": "{items: [{name: a, value: x}, {name: b}]}", "two": "{items: [{name: b}, {name: a, value: x}]}", "three": "{items: [{name: b}]}"},
			want:     "items:\n{{- if or .Values.families.one .Values.families.two }}\n- name: a\n  value: x\n{{- end }}\n- name: b\n",
		},
		"a field of an item": {
			full:     "{items: [{env: [{name: e}], name: a, z: 1}]}",
			base:     "{items: [{name: a, z: 1}]}",
			families: map[string]string{"one": "{items: [{env: [{name: e}], name: a, z: 1}]}"},
			want:     "items:\n- name: a\n{{- if .Values.families.one }}\n  env:\n  - name: e\n{{- end }}\n  z: 1\n",
		},
		"items without a name": {
			full: "{rules: [{verbs: [get]}, {verbs: [list]}]}", base: "{rules: [{verbs: [get]}]}",
			families: map[string]string{"one": "{rules: [{verbs: [get]}, {verbs: [list]}]}"},
			want:     "rules:\n- verbs:\n  - get\n{{- if .Values.families.one }}\n- verbs:\n  - list\n{{- end }}\n",
		},
		"an object of one family": {
			full: "{a: 1}", families: map[string]string{"one": "{a: 1}", "two": ""},
			want: "a: 1\n",
		},
		"an object of two families with a field of one": {
			full: "{a: 1, b: 2}", families: map[string]string{"one": "{a: 1, b: 2}", "two": "{a: 1}"},
			want: "a: 1\n{{- if .Values.families.one }}\nb: 2\n{{- end }}\n",
		},
		"text that looks like a template": {
			full: "{a: '{{ $value }}'}", base: "{a: '{{ $value }}'}",
			want: "a: '{{ \"{{\" }} $value }}'\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := templateOf(variantsOf(t, c.full, c.base, c.families))
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestUnsupportedDifferencesAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		full, base string
		families   map[string]string
		want       string
	}{
		"another value":           {"{a: {b: 2}}", "{a: {b: 1}}", map[string]string{"one": "{a: {b: 2}}"}, ".a.b"},
		"only with both families": {"{a: 1, b: 2}", "{a: 1}", map[string]string{"one": "{a: 1}", "two": "{a: 1}"}, ".b"},
	} {
		if _, err := templateOf(variantsOf(t, c.full, c.base, c.families)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not name %s", name, err, c.want)
		}
	}
}

func TestPlaceholdersBecomeValues(t *testing.T) {
	for placeholder, want := range map[string]string{
		"a: '" + namespacePlaceholder + "'\n":                "a: {{ .Release.Namespace | quote }}\n",
		"a: x." + namespacePlaceholder + ".svc\n":            "a: x.{{ .Release.Namespace }}.svc\n",
		"a: '" + settingPlaceholder("LOG") + "'\n":           "a: {{ include \"berg-operator.setting\" (list . \"LOG\") }}\n",
		"a: '" + exprPlaceholder(".Values.n") + "'\n":        "a: {{ .Values.n }}\n",
		"  a: '" + valuePlaceholder("b") + "'\n":             "{{- with .Values.b }}\n  a: {{- toYaml . | nindent 4 }}\n{{- end }}\n",
		"  - '" + morePlaceholder("b") + "'\n":               "{{- with .Values.b }}\n{{- toYaml . | nindent 2 }}\n{{- end }}\n",
		"  '" + morePlaceholder("b.c") + "': \"\"\n":         "{{- with .Values.b.c }}\n{{- toYaml . | nindent 2 }}\n{{- end }}\n",
		"  '" + morePlaceholder("b", "x", "y") + "': \"\"\n": "{{- with omit (.Values.b | default dict) \"x\" \"y\" }}\n{{- toYaml . | nindent 2 }}\n{{- end }}\n",
		"  '" + labelsPlaceholder() + "': \"\"\n":            "{{- include \"berg-operator.labels\" . | nindent 2 }}\n",
		"  '" + labelsPlaceholder("x") + "': \"\"\n":         "{{- include \"berg-operator.otherLabels\" (list . \"x\") | nindent 2 }}\n",
		"  a: '" + withPlaceholder("f .") + "'\n":            "{{- with f . }}\n  a: {{ . }}\n{{- end }}\n",
		"  '" + keepPlaceholder + "': \"\"\n":                "{{- if .Values.crds.keep }}\n  helm.sh/resource-policy: keep\n{{- end }}\n",
	} {
		if got := fill(placeholder); got != want {
			t.Errorf("%q becomes %q instead of %q", placeholder, got, want)
		}
	}
}
