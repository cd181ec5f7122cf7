{{- /* Written by `make chart`. */}}
{{- define "berg-operator.enabledAPIs" -}}
{{- $apis := list -}}
{{- if .Values.families.berg }}{{ $apis = append $apis "berg.norelect.ch" }}{{ end -}}
{{- if .Values.families.quix }}{{ $apis = append $apis "quix.io" }}{{ end -}}
{{- if .Values.families.hexactf }}{{ $apis = append $apis "apps.hexactf.io" }}{{ end -}}
{{- if .Values.families.tunnel }}{{ $apis = append $apis "usvc-dev.developer.microsoft.com" }}{{ end -}}
{{- if .Values.families.kibaship }}{{ $apis = append $apis "platform.operator.kibaship.com" }}{{ end -}}
{{- if not $apis }}{{ fail "families: at least one must be true" }}{{ end -}}
{{- if lt (len $apis) 5 }}{{ join "," $apis }}{{ end -}}
{{- end }}
