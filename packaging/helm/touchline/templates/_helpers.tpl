{{- define "touchline.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "touchline.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "touchline.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "touchline.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "touchline.selectorLabels" -}}
app.kubernetes.io/name: {{ include "touchline.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "touchline.labels" -}}
{{ include "touchline.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "touchline.image" -}}
{{- $registry := default .Values.image.registry (default dict .Values.global).imageRegistry }}
{{- $name := printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- if $registry }}{{ printf "%s/%s" $registry $name }}{{ else }}{{ $name }}{{ end }}
{{- end }}

{{- define "touchline.imagePullSecrets" -}}
{{- with concat .Values.imagePullSecrets (default list (default dict .Values.global).imagePullSecrets) -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "touchline.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "touchline.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The Secret whose files the server reads. */}}
{{- define "touchline.secretName" -}}
{{- default (printf "%s-secrets" (include "touchline.fullname" .)) .Values.existingSecret }}
{{- end }}

{{/* "true" if the chart creates its own Secret: from secrets, or with random values. */}}
{{- define "touchline.ownSecret" -}}
{{- if and (not .Values.existingSecret) (or .Values.secrets (not .Values.envSecret)) }}true{{ end }}
{{- end }}

{{/* The configuration as JSON: the values of the user override the defaults of the chart. */}}
{{- define "touchline.config" -}}
{{- $filled := dict
      "http_server" (dict "port" 8000 "internal_port" 9000)
      "health" (dict "enabled" true)
      "prometheus" (dict "enabled" .Values.metrics.enabled) }}
{{- mergeOverwrite $filled (deepCopy .Values.config) | toJson }}
{{- end }}

{{/* A port of the configuration: (list . "port"). */}}
{{- define "touchline.port" -}}
{{- $config := include "touchline.config" (index . 0) | fromJson }}
{{- get $config.http_server (index . 1) | int }}
{{- end }}

{{- define "touchline.grpcPort" -}}
{{- $grpc := default dict .Values.config.grpc_api }}
{{- if $grpc.enabled }}{{ default 10000 $grpc.port | int }}{{ end }}
{{- end }}

{{/* Milliseconds of a duration as the server reads it: a number of seconds, or text such as 1h30m. */}}
{{- define "touchline.milliseconds" -}}
{{- $text := toString . }}
{{- if not (regexMatch "^([0-9]+(\\.[0-9]+)?|([0-9]+(\\.[0-9]+)?(ms|us|µs|ns|d|h|m|s))+)$" $text) }}
{{- fail (printf "config.shutdown.timeout: %q is not a duration such as 30s or 1m30s" $text) }}
{{- end }}
{{- if regexMatch "^[0-9.]+$" $text }}
{{- mulf (float64 $text) 1000.0 | ceil | int64 }}
{{- else }}
{{- $factors := dict "d" 86400000.0 "h" 3600000.0 "m" 60000.0 "s" 1000.0 "ms" 1.0 "us" 0.001 "µs" 0.001 "ns" 0.000001 }}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+[^0-9.]+" $text -1 }}
{{- $sum = addf $sum (mulf (regexFind "^[0-9.]+" . | float64) (get $factors (regexFind "[^0-9.]+$" .))) }}
{{- end }}
{{- ceil $sum | int64 }}
{{- end }}
{{- end }}

{{/* The longest time that a stop of the server takes, seconds. */}}
{{- define "touchline.drainSeconds" -}}
{{- $shutdown := default dict .Values.config.shutdown }}
{{- $timeout := default (default "30s" $shutdown.timeout) .Values.env.TOUCHLINE_SHUTDOWN_TIMEOUT }}
{{- divf (include "touchline.milliseconds" $timeout | float64) 1000.0 | ceil | int64 }}
{{- end }}

{{- define "touchline.gracePeriod" -}}
{{- $drain := include "touchline.drainSeconds" . | int64 }}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds }}
{{- add $drain 15 }}
{{- else }}
{{- $grace := int64 .Values.terminationGracePeriodSeconds }}
{{- if le $grace $drain }}
{{- fail (printf "terminationGracePeriodSeconds: %d is not more than config.shutdown.timeout, %d s: Kubernetes would kill pods while they drain" $grace $drain) }}
{{- end }}
{{- $grace }}
{{- end }}
{{- end }}

{{/* Fails if the probes would get no answer. */}}
{{- define "touchline.checkHealth" -}}
{{- $config := include "touchline.config" . | fromJson }}
{{- if not $config.health.enabled }}
{{- fail "config.health.enabled: false would leave the probes without an answer" }}
{{- end }}
{{- if eq (include "touchline.port" (list . "port")) (include "touchline.port" (list . "internal_port")) }}
{{- fail "config.http_server: port and internal_port must be two ports" }}
{{- end }}
{{- end }}

{{/* Fails if several pods would not form a cluster, or would share a volume. */}}
{{- define "touchline.checkReplicas" -}}
{{- $pods := .Values.replicaCount | int }}
{{- if .Values.autoscaling.enabled }}
{{- $pods = .Values.autoscaling.maxReplicas | int }}
{{- end }}
{{- $cluster := default dict .Values.config.cluster }}
{{- $engine := default $cluster.engine .Values.env.TOUCHLINE_CLUSTER_ENGINE }}
{{- if and (gt $pods 1) (ne (default "" $engine) "nats") }}
{{- fail (printf "%d pods without a cluster would not share channels: set config.cluster.engine to \"nats\" and config.cluster.nats_url to your NATS servers, or replicaCount to 1" $pods) }}
{{- end }}
{{- if and .Values.persistence.enabled (gt $pods 1) }}
{{- fail (printf "%d pods cannot share the volume of persistence: keep data in PostgreSQL (secrets.\"store.primary.url\"), or set replicaCount to 1" $pods) }}
{{- end }}
{{- end }}

{{/* Fails if the configuration, which becomes a ConfigMap, holds a secret: (list path value). */}}
{{- define "touchline.checkSecrets" -}}
{{- $path := index . 0 }}
{{- $value := index . 1 }}
{{- if kindIs "map" $value }}
{{- range $key, $part := $value }}
{{- include "touchline.checkSecrets" (list (printf "%s.%s" $path $key) $part) }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $at, $part := $value }}
{{- include "touchline.checkSecrets" (list (printf "%s[%d]" $path $at) $part) }}
{{- end }}
{{- else if and (kindIs "string" $value) $value }}
{{- $secret := regexMatch "\\.(hmac_secret_key|hmac_previous_secret_key|nats_password|nats_token|password|token|secret|secret_previous|credentials_value|eab_hmac_key)$" $path }}
{{- $secret = or $secret (regexMatch "\\.(http_api|grpc_api)\\.key$|\\.http_api\\.keys\\[[0-9]+\\]\\.key$" $path) }}
{{- $secret = or $secret (and (regexMatch "\\.(key_pem|nats_credentials|nats_tls_key)$" $path) (not (hasPrefix "/" $value))) }}
{{- $secret = or $secret (regexMatch "-----BEGIN [A-Z ]*PRIVATE KEY" $value) }}
{{- $secret = or $secret (regexMatch "^[a-z+]+://[^/@]*:[^/@]*@" $value) }}
{{- $secret = or $secret (regexMatch "(^|[?& ])password=" $value) }}
{{- if $secret }}
{{- fail (printf "%s is a secret, and config becomes a ConfigMap: set it in secrets, existingSecret or envSecret" $path) }}
{{- end }}
{{- end }}
{{- end }}

{{/* An Ingress: (list . values suffix port of the Service, name of the Service). */}}
{{- define "touchline.ingress" -}}
{{- $top := index . 0 }}
{{- $ingress := index . 1 }}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ include "touchline.fullname" $top }}{{ index . 2 }}
  namespace: {{ include "touchline.namespace" $top }}
  labels:
    {{- include "touchline.labels" $top | nindent 4 }}
    {{- with $ingress.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $ingress.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- with $ingress.ingressClassName }}
  ingressClassName: {{ . }}
  {{- end }}
  {{- with $ingress.tls }}
  tls:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  rules:
    {{- $service := index . 4 }}
    {{- $port := index . 3 }}
    {{- range $ingress.hosts }}
    - host: {{ .host | quote }}
      http:
        paths:
          {{- range default (list "/") .paths }}
          - path: {{ . | quote }}
            pathType: {{ $ingress.pathType }}
            backend:
              service:
                name: {{ $service }}
                port:
                  name: {{ $port }}
          {{- end }}
    {{- end }}
{{- end }}

{{/* The name of the Service that exposes a port: (list . "internal" useSeparate). */}}
{{- define "touchline.serviceOf" -}}
{{- include "touchline.fullname" (index . 0) }}{{ if index . 2 }}-{{ index . 1 }}{{ end }}
{{- end }}

{{/* A port of a Service: (list name values). */}}
{{- define "touchline.servicePort" -}}
{{- $values := index . 1 -}}
- name: {{ index . 0 }}
  port: {{ $values.port }}
  targetPort: {{ index . 0 }}
  protocol: TCP
  {{- with $values.appProtocol }}
  appProtocol: {{ . }}
  {{- end }}
  {{- if and $values.nodePort (has $values.type (list "NodePort" "LoadBalancer")) }}
  nodePort: {{ $values.nodePort }}
  {{- end }}
{{- end }}

{{/* A Service: (list . suffix values ports). */}}
{{- define "touchline.service" -}}
{{- $top := index . 0 }}
{{- $values := index . 2 -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "touchline.fullname" $top }}{{ index . 1 }}
  namespace: {{ include "touchline.namespace" $top }}
  labels:
    {{- include "touchline.labels" $top | nindent 4 }}
    {{- with $values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $values.type }}
  selector:
    {{- include "touchline.selectorLabels" $top | nindent 4 }}
  ports:
    {{- index . 3 | nindent 4 }}
{{- end }}
