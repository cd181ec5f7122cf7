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

{{- define "berg-operator.reference" -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The API groups of the enabled families. */}}
{{- define "berg-operator.apis" -}}
{{- $apis := list -}}
{{- if .Values.families.berg }}{{ $apis = append $apis "berg.norelect.ch" }}{{ end -}}
{{- if .Values.families.quix }}{{ $apis = append $apis "quix.io" }}{{ end -}}
{{- if .Values.families.hexactf }}{{ $apis = append $apis "apps.hexactf.io" }}{{ end -}}
{{- if .Values.families.tunnel }}{{ $apis = append $apis "usvc-dev.developer.microsoft.com" }}{{ end -}}
{{- if .Values.families.kibaship }}{{ $apis = append $apis "platform.operator.kibaship.com" }}{{ end -}}
{{- if not $apis }}{{ fail "families: at least one must be true" }}{{ end -}}
{{- join "," $apis }}
{{- end }}

{{- /* ENABLED_APIS. Without a value, the operator serves all. */}}
{{- define "berg-operator.enabledAPIs" -}}
{{- $apis := include "berg-operator.apis" . -}}
{{- if lt (len (splitList "," $apis)) (len .Values.families) }}{{ $apis }}{{ end -}}
{{- end }}

{{- /* The labels that the operator's Deployment and its Services select. */}}
{{- define "berg-operator.selector" -}}
app.kubernetes.io/name: berg-operator
control-plane: controller-manager
{{- end }}

{{- /* The labels of an object: list $ [its own] [those of a value]. Its own stay, those of Helm come next, then the value's, then
     commonLabels, which never change what the operator and its Services select. No label may be there twice. */}}
{{- define "berg-operator.labels" -}}
{{- $top := index . 0 -}}
{{- $own := dict "app.kubernetes.io/name" "berg-operator" -}}
{{- if gt (len .) 1 }}{{ $own = index . 1 | default dict }}{{ end -}}
{{- $value := dict -}}
{{- if gt (len .) 2 }}{{ $value = index . 2 | default dict }}{{ end -}}
{{- $helm := dict
  "helm.sh/chart" (printf "%s-%s" $top.Chart.Name $top.Chart.Version | replace "+" "_" | trunc 63)
  "app.kubernetes.io/instance" $top.Release.Name
  "app.kubernetes.io/version" ($top.Chart.AppVersion | trunc 63)
  "app.kubernetes.io/managed-by" $top.Release.Service -}}
{{- $common := omit ($top.Values.commonLabels | default dict) "app.kubernetes.io/name" "control-plane" -}}
{{- merge (dict) $own $helm $value $common | toYaml -}}
{{- end }}

{{- /* Fields of all pods that run the operator's image. */}}
{{- define "berg-operator.pod" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "berg-operator.dnsPolicy" . }}
dnsPolicy: {{ . }}
{{- end }}
{{- end }}

{{- /* The namespace of records. */}}
{{- define "berg-operator.recordNamespace" -}}
{{- .Values.settings.RECORD_NAMESPACE | default "berg-records" -}}
{{- end }}

{{- /* A text from files/ with the names of this release: list $ TEXT [further replacements]. The account is replaced where it
     is meant, before the other names that begin with the fullname. Quotes, because a name may look like a number. */}}
{{- define "berg-operator.renamed" -}}
{{- $top := index . 0 -}}
{{- $text := index . 1 -}}
{{- if gt (len .) 2 }}{{ range $old, $new := index . 2 }}{{ $text = replace $old $new $text }}{{ end }}{{ end -}}
{{- $usual := "berg-operator-controller-manager" -}}
{{- $fullname := include "berg-operator.fullname" $top -}}
{{- $account := include "berg-operator.account" $top -}}
{{- $records := include "berg-operator.recordNamespace" $top -}}
{{- $pattern := printf "^system:serviceaccount:[^:]+:(%s|" $fullname -}}
{{- with $top.Values.serviceAccount.name }}{{ $pattern = printf "^system:serviceaccount:[^:]+:%s$|%s" . $pattern }}{{ end -}}
{{- $text
  | replace (printf "kind: ServiceAccount\n  name: %s\n" $usual) (printf "kind: ServiceAccount\n  name: %s\n" (quote $account))
  | replace (printf "s.name == '%s'" $usual) (printf "s.name == '%s'" $account)
  | replace "^system:serviceaccount:[^:]+:(berg-operator|" $pattern
  | replace ".matches('^(berg-operator|" (printf ".matches('^(%s|" $fullname)
  | replace $usual (printf "%s-controller-manager" $fullname)
  | replace "namespace: berg-operator-system\n" (printf "namespace: %s\n" (quote $top.Release.Namespace))
  | replace "berg-operator-system" $top.Release.Namespace
  | replace "name: berg-records\n" (printf "name: %s\n" (quote $records))
  | replace "namespace: berg-records\n" (printf "namespace: %s\n" (quote $records)) -}}
{{- end }}

{{- /* The objects of a file in files/, which `make chart` copies from config/: list $ FILE [further replacements]. */}}
{{- define "berg-operator.objects" -}}
{{- $top := index . 0 -}}
{{- $values := $top.Values -}}
{{- $replacements := dict -}}
{{- if gt (len .) 2 }}{{ $replacements = index . 2 }}{{ end -}}
{{- $enabled := dict
  "CustomResourceDefinition" $values.crds.enabled
  "NetworkPolicy" $values.networkPolicy.enabled
  "PodDisruptionBudget" $values.podDisruptionBudget.enabled -}}
{{- range splitList "\n---\n" ($top.Files.Get (index . 1)) -}}
{{- $object := fromYaml . -}}
{{- if dig $object.kind true $enabled }}
{{- $isCRD := eq $object.kind "CustomResourceDefinition" -}}
{{- if not $isCRD }}{{ $object = include "berg-operator.renamed" (list $top (printf "%s\n" .) $replacements) | fromYaml }}{{ end -}}
{{- $metadata := $object.metadata -}}
{{- $labels := include "berg-operator.labels" (list $top (get $metadata "labels")) | fromYaml -}}
{{- if and $values.aggregateRoles (eq $object.kind "ClusterRole") (regexMatch "-(editor|viewer)$" $metadata.name) }}
{{- $_ := set $labels "rbac.authorization.k8s.io/aggregate-to-admin" "true" -}}
{{- $_ := set $labels "rbac.authorization.k8s.io/aggregate-to-edit" "true" -}}
{{- end -}}
{{- $_ := set $metadata "labels" $labels -}}
{{- if and $isCRD $values.crds.keep }}{{ $_ := set $metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") (get $metadata "annotations" | default dict)) }}{{ end -}}
{{- if and (eq $metadata.name "quix-platform-account-role") (not $values.quix.allowPodsExec) }}
{{- $rules := list -}}
{{- range $object.rules }}{{ if not (has "pods/exec" .resources) }}{{ $rules = append $rules . }}{{ end }}{{ end -}}
{{- $_ := set $object "rules" $rules -}}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fields of an endpoint of a ServiceMonitor. */}}
{{- define "berg-operator.scrape" -}}
interval: {{ .Values.prometheus.interval }}
{{- with .Values.prometheus.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- with .Values.prometheus.relabelings }}
relabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.prometheus.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
