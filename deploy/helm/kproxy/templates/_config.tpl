{{/* kproxy's config: what the values say, in the frame that the other objects rely on. */}}
{{- define "kproxy.config" -}}
{{- $sni := .Values.advertise.sni -}}
{{- $listener := dict "name" "clients" "bind" "0.0.0.0:9092" "cluster" "main" "advertise" (include "kproxy.advertise" . | fromYaml) -}}
{{- if eq .Values.advertise.mode "sni" -}}
{{- $_ := set $listener "hosts" (list (printf "%s.%s" $sni.bootstrap $sni.domain)) -}}
{{- end -}}
{{- $limits := dict "drain_timeout" (printf "%ds" (int .Values.drain.timeout)) -}}
{{- $config := dict "instance" "${POD_NAME}" "state" "/var/lib/kproxy/state.json" "rules" (list "/etc/kproxy-rules") -}}
{{- $_ := set $config "clusters" (dict "main" .Values.cluster) -}}
{{- $_ := set $config "listeners" (list (merge $listener (deepCopy .Values.listener))) -}}
{{- $_ := set $config "admin" (dict "bind" "0.0.0.0:9190" "token" "file:/etc/kproxy-token/token") -}}
{{- $_ := set $config "limits" (merge $limits (deepCopy (default dict .Values.config.limits))) -}}
{{- toYaml (merge $config (deepCopy .Values.config)) -}}
{{- end -}}

{{/* `advertise` of the listener. */}}
{{- define "kproxy.advertise" -}}
{{- $way := .Values.advertise -}}
{{- if eq $way.mode "ports" -}}
host: {{ printf "${POD_NAME}.%s-pods.${POD_NAMESPACE}.svc" (include "kproxy.fullname" .) | quote }}
ports: {{ printf "%d-%d" (int $way.ports.first) (int $way.ports.last) }}
{{- else if eq $way.mode "nodes" -}}
nodes:
{{- range $id, $port := $way.nodes.ports }}
  {{ $id }}: {{ printf "%s:%d" $way.nodes.host (int $port) | quote }}
{{- end }}
{{- else -}}
sni: {{ printf "%s.%s:%d" $way.sni.broker $way.sni.domain (int $way.sni.port) | quote }}
{{- end -}}
{{- end -}}

{{/* Files of rules, as ConfigMaps have them. */}}
{{- define "kproxy.rules" -}}
{{- $files := dict -}}
{{- range $name, $document := .Values.rules -}}
{{- $_ := set $files $name (kindIs "string" $document | ternary $document (toYaml $document)) -}}
{{- end -}}
{{- toYaml (default (dict "rules.yaml" "rules: []\n") $files) -}}
{{- end -}}
