{{- define "berg-operator.setting" -}}
{{- include "berg-operator.variable" (index (index . 0).Values.settings (index . 1)) -}}
{{- end }}

{{- define "berg-operator.apiSetting" -}}
{{- include "berg-operator.variable" (index (index . 0).Values.api.settings (index . 1)) -}}
{{- end }}

{{- /* A value as the text of an environment variable: numbers without exponents, lists with commas. Without a value, the operator
     takes the default, as with an empty one. */}}
{{- define "berg-operator.variable" -}}
{{- $value := . -}}
{{- if kindIs "invalid" $value -}}
""
{{- else if kindIs "slice" $value -}}
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

{{- /* In the network of a node, a pod finds Services only with another policy than Kubernetes' default. */}}
{{- define "berg-operator.dnsPolicy" -}}
{{- if .Values.dnsPolicy -}}
{{ .Values.dnsPolicy }}
{{- else if .Values.hostNetwork -}}
ClusterFirstWithHostNet
{{- end -}}
{{- end }}

{{- /* The Pod Security level to which the operator's pods conform. */}}
{{- define "berg-operator.podSecurity" -}}
{{- if .Values.hostNetwork }}privileged{{ else }}restricted{{ end -}}
{{- end }}

{{- /* The value of the label by which the sidecar of Grafana finds dashboards. */}}
{{- define "berg-operator.sidecarLabel" -}}
{{- get (.Values.dashboard.labels | default dict) "grafana_dashboard" | default "1" -}}
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
{{- include "berg-operator.otherLabels" (list .) -}}
{{- end }}

{{- /* The same for an object with further labels of its own, which follow the first item of the list: names, or a dict with them. No label may be there twice. */}}
{{- define "berg-operator.otherLabels" -}}
{{- $top := first . -}}
helm.sh/chart: {{ printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/instance: {{ $top.Release.Name | quote }}
app.kubernetes.io/version: {{ $top.Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ $top.Release.Service | quote }}
{{- $common := omit ($top.Values.commonLabels | default dict) "helm.sh/chart" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/name" "control-plane" -}}
{{- range rest . -}}
{{- if kindIs "map" . }}{{ range keys . }}{{ $common = omit $common . }}{{ end }}{{ else }}{{ $common = omit $common . }}{{ end -}}
{{- end -}}
{{- with $common }}
{{ toYaml . }}
{{- end }}
{{- end }}
