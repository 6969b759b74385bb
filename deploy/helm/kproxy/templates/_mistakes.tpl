{{/* What is wrong with values that the schema lets pass, a line for each. Secrets are looked at here and not in the
schema, since what that refuses it prints. */}}
{{- define "kproxy.mistakes" -}}
{{- $way := .Values.advertise -}}
{{- $mistakes := list -}}
{{- $ports := list -}}
{{- with include "kproxy.fullname" . -}}
  {{- if not (regexMatch "^[a-z]([a-z0-9-]*[a-z0-9])?$" .) -}}
    {{- $mistakes = append $mistakes (printf "fullnameOverride: missing, a service cannot be called %q, as release and application are; its name has small letters, digits and -, and begins with a letter" .) -}}
  {{- end -}}
{{- end -}}
{{- if eq $way.mode "ports" -}}
  {{- if gt (int $way.ports.first) (int $way.ports.last) -}}
    {{- $mistakes = append $mistakes "advertise.ports: first comes after last" -}}
  {{- end -}}
  {{- range list 9092 9190 -}}
    {{- if and (le (int $way.ports.first) .) (ge (int $way.ports.last) .) -}}
      {{- $mistakes = append $mistakes (printf "advertise.ports: %d is among them, which is kproxy's own (9092 for clients, 9190 for the admin address)" .) -}}
    {{- end -}}
  {{- end -}}
  {{- if ne .Values.service.type "ClusterIP" -}}
    {{- $mistakes = append $mistakes "service.type: with advertise.mode ports clients are told names of pods, which are known inside of Kubernetes only; take nodes or sni for others" -}}
  {{- end -}}
{{- else if eq $way.mode "nodes" -}}
  {{- if not $way.nodes.host -}}
    {{- $mistakes = append $mistakes "advertise.nodes.host: missing, the name by which clients reach the service" -}}
  {{- end -}}
  {{- if not $way.nodes.ports -}}
    {{- $mistakes = append $mistakes "advertise.nodes.ports: missing, a port for each broker id, such as {\"0\": 9093}" -}}
  {{- end -}}
  {{- range $id, $port := $way.nodes.ports -}}
    {{- if has (int $port) (list 9092 9190) -}}
      {{- $mistakes = append $mistakes (printf "advertise.nodes.ports: %d is kproxy's own (9092 for clients, 9190 for the admin address)" (int $port)) -}}
    {{- else if has (int $port) $ports -}}
      {{- $mistakes = append $mistakes (printf "advertise.nodes.ports: %d is given to two brokers" (int $port)) -}}
    {{- end -}}
    {{- $ports = append $ports (int $port) -}}
  {{- end -}}
{{- else -}}
  {{- if not $way.sni.domain -}}
    {{- $mistakes = append $mistakes "advertise.sni.domain: missing, names of brokers are made of it" -}}
  {{- end -}}
  {{- if not .Values.listener.tls -}}
    {{- $mistakes = append $mistakes "listener.tls: missing, with advertise.mode sni the TLS handshake says which broker a client wants" -}}
  {{- end -}}
{{- end -}}
{{- if and $way.sni.gateway.name (ne $way.mode "sni") -}}
  {{- $mistakes = append $mistakes (printf "advertise.sni.gateway: a TLSRoute needs advertise.mode sni, which is %s" $way.mode) -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.min) (int .Values.autoscaling.max)) -}}
  {{- $mistakes = append $mistakes "autoscaling: min is more than max" -}}
{{- end -}}
{{- with dig "limits" "max_connections" 0 .Values.config -}}
  {{- if and $.Values.autoscaling.enabled (gt (int $.Values.autoscaling.connections) (int .)) -}}
    {{- $mistakes = append $mistakes (printf "autoscaling.connections: a pod takes %d at most (config.limits.max_connections), so there would never be more pods" (int .)) -}}
  {{- end -}}
{{- end -}}
{{- $own := concat (include "kproxy.labels" . | fromYaml | keys) (list "checksum/config" "checksum/rules" "POD_NAME" "POD_NAMESPACE") -}}
{{- range $name, $given := dict "podLabels" .Values.podLabels "podAnnotations" .Values.podAnnotations "podMonitor.labels" .Values.podMonitor.labels "prometheusRule.labels" .Values.prometheusRule.labels "secretEnv" .Values.secretEnv -}}
  {{- range $key, $_ := $given -}}
    {{- if has $key $own -}}
      {{- $mistakes = append $mistakes (printf "%s: the chart itself sets %s" $name $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if .Values.webhook.enabled -}}
  {{- if not .Values.webhook.certSecret -}}
    {{- $mistakes = append $mistakes (printf "webhook.certSecret: missing, a Secret with tls.crt and tls.key for %s-webhook.%s.svc" (include "kproxy.fullname" .) .Release.Namespace) -}}
  {{- end -}}
  {{- if and .Values.webhook.caBundle .Values.webhook.certManager -}}
    {{- $mistakes = append $mistakes "webhook.caBundle: certManager is given, too; the authority comes from one of them" -}}
  {{- else if not (or .Values.webhook.caBundle .Values.webhook.certManager) -}}
    {{- $mistakes = append $mistakes "webhook.caBundle: missing, the authority of the certificate, without which Kubernetes does not trust the webhook; or name a certManager certificate" -}}
  {{- end -}}
  {{- if and .Values.webhook.native (semverCompare "<1.29-0" .Capabilities.KubeVersion.Version) -}}
    {{- $mistakes = append $mistakes (printf "webhook.native: Kubernetes 1.29 or newer is needed, this is %s" .Capabilities.KubeVersion.Version) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.rules .Values.rulesConfigMap -}}
  {{- $mistakes = append $mistakes "rules: rulesConfigMap is given, too; rules come from one of them" -}}
{{- end -}}
{{- if and .Values.restartOnRules .Values.rulesConfigMap -}}
  {{- $mistakes = append $mistakes "restartOnRules: the chart does not see what is in rulesConfigMap" -}}
{{- end -}}
{{- $audit := default dict .Values.config.audit -}}
{{- range $name, $folder := dict "config.audit.dir" $audit.dir "config.captures" .Values.config.captures -}}
  {{- if and $folder (not (hasPrefix "/var/lib/kproxy/" $folder)) -}}
    {{- $mistakes = append $mistakes (printf "%s: %q cannot be written, only folders in /var/lib/kproxy/ can" $name $folder) -}}
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
{{- range $name, $text := $secrets -}}
  {{- if and $text (not (regexMatch "^(file:/.+|\\$\\{\\w+\\})$" $text)) -}}
    {{- $mistakes = append $mistakes (printf "%s: a secret does not belong into values, write file:/etc/kproxy-secrets/NAME/KEY with NAME in `secrets`, or ${VARIABLE} with VARIABLE in `secretEnv`" $name) -}}
  {{- end -}}
{{- end -}}
{{- range $option, $_ := dig "audit" "kafka" "options" dict .Values.config -}}
  {{- if regexMatch "password|secret|\\.pem$|jaas" $option -}}
    {{- $mistakes = append $mistakes (printf "config.audit.kafka.options: %s is a secret, which does not belong into values; there is config.audit.kafka.password, and options that name files" $option) -}}
  {{- end -}}
{{- end -}}
{{- $config := include "kproxy.config" . -}}
{{- range $folder, $known := dict "secrets" (default dict .Values.secrets) "files" (default dict .Values.configMaps) -}}
  {{- range regexFindAll (printf "/etc/kproxy-%s/[^/\\s\"']+" $folder) $config -1 | uniq -}}
    {{- if not (hasKey $known (base .)) -}}
      {{- $mistakes = append $mistakes (printf "%s: the config names %s, and there is no %q here" (eq $folder "files" | ternary "configMaps" "secrets") . (base .)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range regexFindAll "\\$\\{\\w+\\}" (replace "$${" "" $config) -1 | uniq -}}
  {{- $variable := . | trimPrefix "${" | trimSuffix "}" -}}
  {{- if not (or (hasKey (default dict $.Values.secretEnv) $variable) (has $variable (list "POD_NAME" "POD_NAMESPACE"))) -}}
    {{- $mistakes = append $mistakes (printf "secretEnv: the config names %s, and there is no %q here" . $variable) -}}
  {{- end -}}
{{- end -}}
{{- join "\n" $mistakes -}}
{{- end -}}
