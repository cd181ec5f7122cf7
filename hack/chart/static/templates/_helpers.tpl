{{- define "berg-operator.setting" -}}
{{- include "berg-operator.variable" (index (index . 0).Values.settings (index . 1)) -}}
{{- end }}

{{- define "berg-operator.apiSetting" -}}
{{- include "berg-operator.variable" (index (index . 0).Values.api.settings (index . 1)) -}}
{{- end }}

{{- /* A value as the text of an environment variable: numbers without exponents, lists with commas. */}}
{{- define "berg-operator.variable" -}}
{{- $value := . -}}
{{- if kindIs "slice" $value -}}
{{- join "," $value | quote -}}
{{- else if and (kindIs "float64" $value) (eq (floor $value) $value) -}}
{{- $value | int64 | toString | quote -}}
{{- else -}}
{{- $value | toString | quote -}}
{{- end -}}
{{- end }}

{{- /* What the names of the Deployment, its account and other objects begin with that nothing else knows by name. */}}
{{- define "berg-operator.fullname" -}}
{{- .Values.fullnameOverride | default "berg-operator" -}}
{{- end }}

{{- /* The operator's ServiceAccount. */}}
{{- define "berg-operator.account" -}}
{{- .Values.serviceAccount.name | default (printf "%s-controller-manager" (include "berg-operator.fullname" .)) -}}
{{- end }}

{{- define "berg-operator.priorityClass" -}}
{{- .Values.priorityClassName | default (printf "%s-controller-manager" (include "berg-operator.fullname" .)) -}}
{{- end }}

{{- define "berg-operator.image" -}}
{{- include "berg-operator.reference" (list . .Values.image) -}}
{{- end }}

{{- define "berg-operator.apiImage" -}}
{{- include "berg-operator.reference" (list . .Values.api.image) -}}
{{- end }}

{{- /* Where the kubelet looks for seccomp profiles. */}}
{{- define "berg-operator.seccompFolder" -}}
{{- printf "%s/seccomp" .Values.seccompProfiles.kubeletFolder | quote -}}
{{- end }}

{{- define "berg-operator.reference" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Labels of every object, in addition to those that the operator and its Services select. */}}
{{- define "berg-operator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
