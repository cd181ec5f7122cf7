package main

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// objectOf reads an object from YAML; an empty text is none.
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

func TestWhatComesWithFamiliesStandsBetweenConditions(t *testing.T) {
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
		"fields of a family one after the other": {
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
		"rules, which have no name": {
			full: "{rules: [{verbs: [get]}, {verbs: [list]}]}", base: "{rules: [{verbs: [get]}]}",
			families: map[string]string{"one": "{rules: [{verbs: [get]}, {verbs: [list]}]}"},
			want:     "rules:\n- verbs:\n  - get\n{{- if .Values.families.one }}\n- verbs:\n  - list\n{{- end }}\n",
		},
		"the whole of a family": {
			full: "{a: 1}", families: map[string]string{"one": "{a: 1}", "two": ""},
			want: "a: 1\n",
		},
		"the whole of two, and a part of one of them": {
			full: "{a: 1, b: 2}", families: map[string]string{"one": "{a: 1, b: 2}", "two": "{a: 1}"},
			want: "a: 1\n{{- if .Values.families.one }}\nb: 2\n{{- end }}\n",
		},
		"what looks like a template": {
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

func TestWhatHasNoPlaceInTheChartIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		full, base string
		families   map[string]string
		want       string
	}{
		"another value": {"{a: {b: 2}}", "{a: {b: 1}}", map[string]string{"one": "{a: {b: 2}}"}, ".a.b"},
		"only together": {"{a: 1, b: 2}", "{a: 1}", map[string]string{"one": "{a: 1}", "two": "{a: 1}"}, ".b"},
	} {
		if _, err := templateOf(variantsOf(t, c.full, c.base, c.families)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not name %s", name, err, c.want)
		}
	}
}

func TestMarksBecomeValues(t *testing.T) {
	for mark, want := range map[string]string{
		"a: '" + namespaceMark + "'\n":         "a: {{ .Release.Namespace | quote }}\n",
		"a: x." + namespaceMark + ".svc\n":     "a: x.{{ .Release.Namespace }}.svc\n",
		"a: '" + settingMark("LOG") + "'\n":    "a: {{ include \"berg-operator.setting\" (list . \"LOG\") }}\n",
		"a: '" + exprMark(".Values.n") + "'\n": "a: {{ .Values.n }}\n",
		"  a: '" + valueMark("b") + "'\n":      "{{- with .Values.b }}\n  a: {{- toYaml . | nindent 4 }}\n{{- end }}\n",
		"  - '" + moreMark("b") + "'\n":        "{{- with .Values.b }}\n{{- toYaml . | nindent 2 }}\n{{- end }}\n",
		"  '" + moreMark("b.c") + "': \"\"\n":  "{{- with .Values.b.c }}\n{{- toYaml . | nindent 2 }}\n{{- end }}\n",
		"  '" + keepMark + "': \"\"\n":         "{{- if .Values.crds.keep }}\n  helm.sh/resource-policy: keep\n{{- end }}\n",
	} {
		if got := fill(mark); got != want {
			t.Errorf("%q becomes %q instead of %q", mark, got, want)
		}
	}
}
