{{- /* The ports of the gate's listeners. */}}
{{- define "berg-operator.gatePorts" -}}
{{- $ports := list -}}
{{- range $_, $port := .Values.gate.ports }}{{ $ports = append $ports (int $port | toString) }}{{ end -}}
{{- if not $ports }}{{ fail "gate.ports: must have a port" }}{{ end -}}
{{- join "," $ports }}
{{- end }}

{{- /* The Gateway that the settings describe, the right to read its certificate, and the policy that protects it: what
     config/berg/samples/prerequisites has, for any settings. */}}
{{- define "berg-operator.gateway" -}}
{{- $settings := .Values.settings -}}
{{- $name := $settings.GATEWAY_NAME | default "berg-gateway" -}}
{{- $namespace := $settings.GATEWAY_NAMESPACE | default "berg" -}}
{{- $hostname := printf "*.%s" ($settings.CHALLENGE_DOMAIN | default "challenges.example.com") -}}
{{- $secret := .Values.gate.gateway.tlsSecret -}}
{{- $labels := include "berg-operator.labels" (list . (dict "app.kubernetes.io/name" "berg-gate" "app.kubernetes.io/part-of" "berg-operator")) -}}
{{- $httpPort := $settings.CHALLENGE_HTTP_PORT | default 80 | int -}}
{{- $tlsPort := $settings.CHALLENGE_TLS_PORT | default 443 | int -}}
{{- $ports := splitList "," (include "berg-operator.gatePorts" .) -}}
{{- range $setting, $port := dict "CHALLENGE_HTTP_PORT" $httpPort "CHALLENGE_TLS_PORT" $tlsPort -}}
{{- if not (has (toString $port) $ports) }}{{ fail (printf "settings.%s: %d is none of gate.ports, %s. Add it there, or set gate.gateway.create=false and create the Gateway yourself" $setting $port (join ", " $ports)) }}{{ end -}}
{{- end -}}
{{- if eq $httpPort $tlsPort }}{{ fail (printf "settings.CHALLENGE_TLS_PORT: must differ from CHALLENGE_HTTP_PORT, which is %d too, such as 8443" $httpPort) }}{{ end -}}
{{- $isHTTPS := and (ne $httpPort 80) (ne (toString $settings.CHALLENGE_HTTP_TLS) "false") -}}
{{- $allowed := dict "namespaces" (dict "from" "Selector" "selector" (dict "matchLabels" (dict "app.kubernetes.io/managed-by" "berg"))) -}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: {{ $name | quote }}
  namespace: {{ $namespace | quote }}
  labels: {{- $labels | nindent 4 }}
spec:
  gatewayClassName: berg-gate
  listeners:
  - name: {{ $settings.CHALLENGE_HTTP_LISTENER_NAME | default "http" | quote }}
    protocol: {{ ternary "HTTPS" "HTTP" $isHTTPS }}
    port: {{ $httpPort }}
    hostname: {{ $hostname | quote }}
    {{- if $isHTTPS }}
    tls:
      mode: Terminate
      certificateRefs:
      - name: {{ $secret | quote }}
    {{- end }}
    # Only instances may attach: the operator puts this label on their namespaces.
    allowedRoutes: {{- toYaml $allowed | nindent 6 }}
  - name: {{ $settings.CHALLENGE_TLS_LISTENER_NAME | default "tls" | quote }}
    protocol: TLS
    port: {{ $tlsPort }}
    hostname: {{ $hostname | quote }}
    tls:
      mode: Terminate
      certificateRefs:
      - name: {{ $secret | quote }}
    allowedRoutes: {{- toYaml $allowed | nindent 6 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: berg-gate-certificate
  namespace: {{ $namespace | quote }}
  labels: {{- $labels | nindent 4 }}
rules:
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ $secret | quote }}]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: berg-gate-certificate
  namespace: {{ $namespace | quote }}
  labels: {{- $labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: berg-gate-certificate
subjects:
- kind: ServiceAccount
  name: berg-gate
  namespace: {{ .Release.Namespace | quote }}
{{- with .Values.gate.gateway.issuerRef }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $secret | quote }}
  namespace: {{ $namespace | quote }}
  labels: {{- $labels | nindent 4 }}
spec:
  secretName: {{ $secret | quote }}
  dnsNames: [{{ $hostname | quote }}]
  privateKey: {algorithm: ECDSA}
  issuerRef: {{- toYaml . | nindent 4 }}
{{- end }}
{{ $usual := "berg-operator-system:berg-operator-controller-manager" -}}
{{ include "berg-operator.objects" (list . "files/gateway-policy.yaml" (dict $usual (printf "%s:%s" .Release.Namespace (include "berg-operator.account" .)))) }}
{{- end }}
