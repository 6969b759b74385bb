{{/* Errors in values that the schema accepts, one per line. Secrets are checked here, since the schema's errors print the values. */}}
{{- define "kproxy.mistakes" -}}
{{- $way := .Values.advertise -}}
{{- $mistakes := list -}}
{{- $ports := list -}}
{{- with include "kproxy.fullname" . -}}
  {{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" .) -}}
    {{- $mistakes = append $mistakes (printf "fullnameOverride: required, since %q is not a valid service name: expected lower-case letters, digits and -, with a letter first" .) -}}
  {{- end -}}
{{- end -}}
{{- if eq $way.mode "ports" -}}
  {{- if gt (int $way.ports.first) (int $way.ports.last) -}}
    {{- $mistakes = append $mistakes "advertise.ports: first is greater than last" -}}
  {{- end -}}
  {{- range list 9092 9190 -}}
    {{- if and (le (int $way.ports.first) .) (ge (int $way.ports.last) .) -}}
      {{- $mistakes = append $mistakes (printf "advertise.ports: %d is reserved (9092 for clients, 9190 for the admin address)" .) -}}
    {{- end -}}
  {{- end -}}
  {{- if ne .Values.service.type "ClusterIP" -}}
    {{- $mistakes = append $mistakes "service.type: expected ClusterIP with advertise.mode ports, since pod names resolve inside Kubernetes only; use nodes or sni for clients outside" -}}
  {{- end -}}
{{- else if eq $way.mode "nodes" -}}
  {{- if not $way.nodes.host -}}
    {{- $mistakes = append $mistakes "advertise.nodes.host: required, the host name of the service for clients" -}}
  {{- end -}}
  {{- if not $way.nodes.ports -}}
    {{- $mistakes = append $mistakes "advertise.nodes.ports: required, a port for each broker id, such as {\"0\": 9093}" -}}
  {{- end -}}
  {{- range $id, $port := $way.nodes.ports -}}
    {{- if has (int $port) (list 9092 9190) -}}
      {{- $mistakes = append $mistakes (printf "advertise.nodes.ports: %d is reserved (9092 for clients, 9190 for the admin address)" (int $port)) -}}
    {{- else if has (int $port) $ports -}}
      {{- $mistakes = append $mistakes (printf "advertise.nodes.ports: %d belongs to two brokers" (int $port)) -}}
    {{- end -}}
    {{- $ports = append $ports (int $port) -}}
  {{- end -}}
{{- else -}}
  {{- if not $way.sni.domain -}}
    {{- $mistakes = append $mistakes "advertise.sni.domain: required, the domain of the brokers' host names" -}}
  {{- end -}}
  {{- if not .Values.listener.tls -}}
    {{- $mistakes = append $mistakes "listener.tls: required with advertise.mode sni, since the TLS handshake selects the broker" -}}
  {{- end -}}
{{- end -}}
{{- if and $way.sni.gateway.name (ne $way.mode "sni") -}}
  {{- $mistakes = append $mistakes (printf "advertise.sni.gateway: a TLSRoute needs advertise.mode sni, got %s" $way.mode) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.min) (int .Values.autoscaling.max)) -}}
  {{- $mistakes = append $mistakes "autoscaling: min is greater than max" -}}
{{- end -}}
{{- with dig "limits" "max_connections" 0 .Values.config -}}
  {{- if and $.Values.autoscaling.enabled (gt (int $.Values.autoscaling.connections) (int .)) -}}
    {{- $mistakes = append $mistakes (printf "autoscaling.connections: expected at most %d (config.limits.max_connections); otherwise no pod is added" (int .)) -}}
  {{- end -}}
{{- end -}}
{{- $own := concat (include "kproxy.labels" . | fromYaml | keys) (list "checksum/config" "checksum/rules" "POD_NAME" "POD_NAMESPACE") -}}
{{- range $name, $given := dict "podLabels" .Values.podLabels "podAnnotations" .Values.podAnnotations "podMonitor.labels" .Values.podMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels "secretEnv" .Values.secretEnv -}}
  {{- range $key, $_ := $given -}}
    {{- if has $key $own -}}
      {{- $mistakes = append $mistakes (printf "%s: the chart sets %s" $name $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if .Values.webhook.enabled -}}
  {{- if not .Values.webhook.certSecret -}}
    {{- $mistakes = append $mistakes (printf "webhook.certSecret: required, a Secret with tls.crt and tls.key for %s-webhook.%s.svc" (include "kproxy.fullname" .) .Release.Namespace) -}}
  {{- end -}}
  {{- if and .Values.webhook.caBundle .Values.webhook.certManager -}}
    {{- $mistakes = append $mistakes "webhook.caBundle: expected either caBundle or certManager, got both" -}}
  {{- else if not (or .Values.webhook.caBundle .Values.webhook.certManager) -}}
    {{- $mistakes = append $mistakes "webhook.caBundle: required, the CA of the certificate (PEM in base64), unless certManager names a certificate" -}}
  {{- end -}}
  {{- if and .Values.webhook.native (semverCompare "<1.29-0" .Capabilities.KubeVersion.Version) -}}
    {{- $mistakes = append $mistakes (printf "webhook.native: expected Kubernetes 1.29 or newer, got %s" .Capabilities.KubeVersion.Version) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.rules .Values.rulesConfigMap -}}
  {{- $mistakes = append $mistakes "rules: expected either rules or rulesConfigMap, got both" -}}
{{- end -}}
{{- if and .Values.restartOnRules .Values.rulesConfigMap -}}
  {{- $mistakes = append $mistakes "restartOnRules: not possible with rulesConfigMap, since the chart lacks its content" -}}
{{- end -}}
{{- $audit := default dict .Values.config.audit -}}
{{- range $name, $folder := dict "config.audit.dir" $audit.dir "config.captures" .Values.config.captures -}}
  {{- if and $folder (not (hasPrefix "/var/lib/kproxy/" $folder)) -}}
    {{- $mistakes = append $mistakes (printf "%s: %q is not writable, expected a folder in /var/lib/kproxy/" $name $folder) -}}
  {{- end -}}
{{- end -}}
{{- $secrets := dict
  "cluster.tls.key_password" (dig "tls" "key_password" "" .Values.cluster)
  "cluster.sasl.password" (dig "sasl" "password" "" .Values.cluster)
  "listener.tls.key_password" (dig "tls" "key_password" "" .Values.listener)
  "config.audit.kafka.password" (dig "audit" "kafka" "password" "" .Values.config)
  "config.otlp.tls.key_password" (dig "otlp" "tls" "key_password" "" .Values.config)
-}}
{{- range $header, $text := dig "otlp" "headers" dict .Values.config -}}
  {{- $secrets = set $secrets (printf "config.otlp.headers.%s" $header) $text -}}
{{- end -}}
{{- range $registry, $settings := default dict (dig "registries" dict .Values.config) -}}
  {{- $settings = default dict $settings -}}
  {{- $secrets = set $secrets (printf "config.registries.%s.password" $registry) $settings.password -}}
  {{- $secrets = set $secrets (printf "config.registries.%s.tls.key_password" $registry) (dig "tls" "key_password" "" $settings) -}}
{{- end -}}
{{- range $name, $text := $secrets -}}
  {{- if and $text (not (regexMatch "^(file:/.+|\\$\\{\\w+\\})$" $text)) -}}
    {{- $mistakes = append $mistakes (printf "%s: secrets are not allowed in values, use file:/etc/kproxy-secrets/NAME/KEY with NAME in `secrets`, or ${VARIABLE} with VARIABLE in `secretEnv`" $name) -}}
  {{- end -}}
{{- end -}}
{{- range $option, $_ := dig "audit" "kafka" "options" dict .Values.config -}}
  {{- if regexMatch "password|secret|\\.pem$|jaas" $option -}}
    {{- $mistakes = append $mistakes (printf "config.audit.kafka.options: %s is a secret and not allowed in values; use config.audit.kafka.password, or options that name files" $option) -}}
  {{- end -}}
{{- end -}}
{{- $config := include "kproxy.config" . -}}
{{- range $folder, $known := dict "secrets" (default dict .Values.secrets) "files" (default dict .Values.configMaps) -}}
  {{- range regexFindAll (printf "/etc/kproxy-%s/[^/\\s\"']+" $folder) $config -1 | uniq -}}
    {{- if not (hasKey $known (base .)) -}}
      {{- $mistakes = append $mistakes (printf "%s: the config names %s, but %q is not defined" (eq $folder "files" | ternary "configMaps" "secrets") . (base .)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range regexFindAll "\\$\\{\\w+\\}" (replace "$${" "" $config) -1 | uniq -}}
  {{- $variable := . | trimPrefix "${" | trimSuffix "}" -}}
  {{- if not (or (hasKey (default dict $.Values.secretEnv) $variable) (has $variable (list "POD_NAME" "POD_NAMESPACE"))) -}}
    {{- $mistakes = append $mistakes (printf "secretEnv: the config names %s, but %q is not defined" . $variable) -}}
  {{- end -}}
{{- end -}}
{{- join "\n" $mistakes -}}
{{- end -}}
