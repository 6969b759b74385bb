{{/* Name of the application: Prometheus' job, too. */}}
{{- define "kproxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of what belongs to this release; short enough for a pod's number and for "-pods" behind it. */}}
{{- define "kproxy.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "kproxy.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kproxy.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kproxy.selector" -}}
app.kubernetes.io/name: {{ include "kproxy.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "kproxy.labels" -}}
{{ include "kproxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{/* kproxy's image, with its registry and tag. */}}
{{- define "kproxy.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* The webhook's pods are others than kproxy's own, which services and monitors select. */}}
{{- define "kproxy.webhookSelector" -}}
app.kubernetes.io/name: {{ printf "%s-webhook" (include "kproxy.name" . | trunc 55) | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "kproxy.webhookLabels" -}}
{{ include "kproxy.webhookSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{/* ConfigMap of the rules, of this chart or of somebody else. */}}
{{- define "kproxy.rulesName" -}}
{{- default (printf "%s-rules" (include "kproxy.fullname" .)) .Values.rulesConfigMap -}}
{{- end -}}
