{{- /* The value of a setting as the text of an environment variable: numbers without exponents, lists with commas. */}}
{{- define "berg-operator.setting" -}}
{{- $value := index (index . 0).Values.settings (index . 1) -}}
{{- if kindIs "slice" $value -}}
{{- join "," $value | quote -}}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- $value | int64 | toString | quote -}}
{{- else -}}
{{- $value | toString | quote -}}
{{- end -}}
{{- end }}

{{- define "berg-operator.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
