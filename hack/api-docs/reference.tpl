{{- /* For `make api-docs`: what crd-ref-docs writes, as tables for a reader in a hurry. */ -}}

{{- define "gvList" -}}
# API reference

Every field, with type, unit, default and rule. `kubectl explain` tells the same. A field
that is not marked as required may be left out or, in a Challenge, be null.
{{- /* Challenge instances come first: most readers look for them. */}}
{{ range . }}{{ if eq .Group "berg.norelect.ch" }}{{ template "version" . }}{{ end }}{{ end }}
{{- range . }}{{ if ne .Group "berg.norelect.ch" }}
{{- template "version" . }}
{{- end }}{{ end }}
{{- end -}}

{{- define "version" }}
## {{ .GroupVersionString }}

{{ .Doc }}

Kinds:
{{- range .SortedKinds }} {{ $.TypeForKind . | markdownRenderTypeLink }}{{ end }}
{{ range .SortedTypes }}
{{- if and (markdownShouldRenderType .) (ne .Name "EnvironmentValue") }}
{{- template "type" . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "type" }}
### {{ .Name }}

{{ template "text" .Doc }}
{{- if .Validation }}

Rules: {{ template "rules" .Validation }}
{{- end }}
{{- with .SortedReferences }}

In:{{ range . }} {{ markdownRenderTypeLink . }}{{ end }}
{{- end }}
{{- if .Members }}

| field | type | what it is | rules |
| --- | --- | --- | --- |
{{- with .GVK }}
| `apiVersion` | string | `{{ .Group }}/{{ .Version }}` | |
| `kind` | string | `{{ .Kind }}` | |
{{- end }}
{{- range .Members }}
{{- if eq .Name "metadata" }}
| `metadata` | {{ markdownRenderType .Type }} | Name, namespace, labels and annotations, as of every resource. | |
{{- else }}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ template "cell" .Doc }} | {{ template "rules" .Validation }} |
{{- end }}
{{- end }}
{{- end }}
{{ end -}}

{{- define "text" }}{{ . | replace "<" "&lt;" }}{{ end -}}

{{- define "cell" }}{{ . | replace "<" "&lt;" | replace "|" "\\|" | replace "\n" " " }}{{ end -}}

{{- define "rules" }}
{{- $shown := list }}
{{- range . }}
{{- if eq . "Required: {}" }}{{ $shown = append $shown "**required**" }}
{{- else if hasPrefix "items:XValidation" . }}{{- /* like those of fields, which crd-ref-docs leaves out: the text tells them */ -}}
{{- else if not (has . (list "Optional: {}" "Schemaless: {}" "XIntOrString: {}" "Type: object")) }}{{ $shown = append $shown (. | replace "|" "\\|" | trim) }}
{{- end }}
{{- end }}
{{- join ", " $shown }}
{{- end -}}
