{{/* Names, labels, images. */}}
{{- define "headrace.labels" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "headrace.allLabels" -}}
{{ include "headrace.labels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "headrace.image" -}}
{{- $images := .root.Values.images -}}
{{- $digest := index $images.digests .image -}}
{{ $images.repository }}/{{ .image }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $images.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "headrace.secretName" -}}
{{ .Values.secrets.existing | default (printf "%s-secrets" .Release.Name) }}
{{- end }}

{{- define "headrace.natsUrl" -}}
{{ .Values.nats.url | default (printf "nats://%s-nats:4222" .Release.Name) }}
{{- end }}

{{- define "headrace.valkeyUrl" -}}
{{ .Values.valkey.url | default (printf "redis://%s-valkey:6379" .Release.Name) }}
{{- end }}

{{/* The port of a URL; JSON of nothing but it. */}}
{{- define "headrace.portOf" -}}
{{- regexFind "[0-9]+$" (urlParse .url).host | default .otherwise -}}
{{- end }}

{{/* A number of a values file is a float, and a large one would be written with an exponent. What is no text is JSON. */}}
{{- define "headrace.text" -}}
{{- if or (kindIs "slice" .) (kindIs "map" .) }}{{ toRawJson . }}{{ else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* Variables of `settings`, with `prefix`. */}}
{{- define "headrace.env" -}}
{{- $prefix := .prefix }}
{{- range $field, $value := .settings }}
- name: {{ printf "%s_%s" $prefix $field | upper }}
  value: {{ include "headrace.text" $value | quote }}
{{- end }}
{{- end }}

{{/* What each service is told: who it is, its broker, its health file, and the values' own settings. */}}
{{- define "headrace.serviceEnv" -}}
{{- $prefix := printf "HR_%s" .service | upper }}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: {{ $prefix }}_INSTANCE
  value: {{ printf "$(POD_NAME)%s" (.suffix | default "") }}
- name: {{ $prefix }}_NATS_URL
  value: {{ include "headrace.natsUrl" .root }}
- name: {{ $prefix }}_NATS_USER
  value: {{ .service }}
- name: {{ $prefix }}_NATS_PASSWORD_FILE
  value: /run/secrets/nats_{{ .service }}
- name: {{ $prefix }}_HEALTH_FILE
  value: /tmp/health
- name: {{ $prefix }}_DRAIN_S
  value: {{ .drainSeconds | quote }}
{{- include "headrace.env" (dict "prefix" $prefix "settings" (merge (deepCopy .settings) .root.Values.settings)) }}
{{- end }}

{{/* Who has a user there, as JSON. */}}
{{- define "headrace.indexUsers" -}}
{{- (.Files.Get "files/brokers.json" | fromJson).valkey.users | toJson -}}
{{- end }}

{{/* Valkey, for who uses it. */}}
{{- define "headrace.indexEnv" -}}
{{- $prefix := printf "HR_%s" .service | upper }}
{{- if has .service (include "headrace.indexUsers" .root | fromJsonArray) }}
- name: {{ $prefix }}_REDIS_URL
  value: {{ include "headrace.valkeyUrl" .root }}
- name: {{ $prefix }}_REDIS_USER
  value: {{ .service }}
- name: {{ $prefix }}_REDIS_PASSWORD_FILE
  value: /run/secrets/index_{{ .service }}
{{- end }}
{{- end }}

{{/* One model, for who reads it. */}}
{{- define "headrace.modelEnv" -}}
{{- $prefix := printf "HR_%s" .service | upper }}
- name: {{ $prefix }}_MODEL
  value: {{ .model.name | quote }}
- name: {{ $prefix }}_MODEL_DIR
  value: /models/{{ .model.path }}
- name: {{ $prefix }}_MAX_MODEL_LEN
  value: {{ include "headrace.text" .model.maxModelLen | quote }}
{{- end }}

{{/* Every container: an image, no rights, a root that nobody writes to. */}}
{{- define "headrace.container" -}}
image: {{ include "headrace.image" . }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* Every pod: nobody special, no token of the cluster, no variables about other services. */}}
{{- define "headrace.pod" -}}
serviceAccountName: {{ .Release.Name }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Replicas on different nodes where there are several. */}}
{{- define "headrace.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- . | nindent 8 }}
{{- end }}

{{/* By the file that a service rewrites every second. */}}
{{- define "headrace.probes" -}}
startupProbe:
  exec: {command: [python3, -S, -I, health.py, alive]}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  exec: {command: [python3, -S, -I, health.py, alive]}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  exec: {command: [python3, -S, -I, health.py, ready]}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "headrace.tmp" -}}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}

{{/* Of the Secret, the entries that a pod needs and no others; those of a `service` are its users'. */}}
{{- define "headrace.secretVolume" -}}
{{- $entries := .entries }}
{{- with .service }}
{{- $entries = prepend $entries (printf "nats_%s" .) }}
{{- if has . (include "headrace.indexUsers" $.root | fromJsonArray) }}{{ $entries = append $entries (printf "index_%s" .) }}{{ end }}
{{- end }}
- name: secrets
  secret:
    secretName: {{ include "headrace.secretName" .root }}
    defaultMode: 0440
    items:
{{- range $entries }}
      - {key: {{ . }}, path: {{ . }}}
{{- end }}
{{- end }}

{{/* The default model comes in an image and is copied; another lies in a volume of the cluster. */}}
{{- define "headrace.modelVolume" -}}
- name: models
{{- if .Values.modelVolume.claim }}
  persistentVolumeClaim: {claimName: {{ .Values.modelVolume.claim }}, readOnly: true}
{{- else }}
  emptyDir: {}
{{- end }}
{{- end }}

{{- define "headrace.modelContainer" -}}
{{- if not .Values.modelVolume.claim }}
- name: model
  {{- include "headrace.container" (dict "root" . "image" "model") | nindent 2 }}
  volumeMounts:
    - {name: models, mountPath: /models}
    - {name: tmp, mountPath: /tmp}
  resources:
    requests: {cpu: 100m, memory: 64Mi}
    limits: {memory: 512Mi}
{{- end }}
{{- end }}

{{- define "headrace.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: secrets, mountPath: /run/secrets, readOnly: true}
{{- end }}

{{- define "headrace.modelMount" -}}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}

{{/* Longer than the service takes, so that nothing is cut off. */}}
{{- define "headrace.graceSeconds" -}}
{{ add . 10 }}
{{- end }}

{{/* Groups of cells with what they do not say taken from cellDefaults, as JSON. */}}
{{- define "headrace.cells" -}}
{{- $groups := dict }}
{{- range $name, $own := .Values.cells }}
{{- $cells := mergeOverwrite (deepCopy $.Values.cellDefaults) ($own | default dict) }}
{{- if not (hasKey $.Values.models $cells.model) }}{{ fail (printf "cells.%s.model: there is no %s in models" $name $cells.model) }}{{ end }}
{{- $_ := set $groups $name $cells }}
{{- end }}
{{- toJson $groups }}
{{- end }}
