{{/* Mistakes that the schema cannot see. Each message names the value and what would be right. */}}
{{- define "tessera.refuseMistakes" -}}
{{- $server := .Values.server -}}
{{- if and $server.repository.url $server.repository.claim -}}
{{- fail "server.repository: expected `url` or `claim`, got both" -}}
{{- end -}}
{{- if and $server.repository.subPath (not $server.repository.claim) -}}
{{- fail "server.repository.subPath: expected `server.repository.claim` to be set as well" -}}
{{- end -}}
{{- if and (gt (int $server.gpus.count) 0) $server.deviceClaim.enabled -}}
{{- fail "server.gpus.count and server.deviceClaim.enabled: expected one of them, got both" -}}
{{- end -}}
{{- range $key, $value := dict "grace" "server.graceSeconds" "lame_duck" "server.lameDuckSeconds" -}}
{{- if regexMatch (printf `(?m)^\s*(server\.)?%s\s*=` $key) $server.config -}}
{{- fail (printf "server.config sets `%s`: set the value `%s` instead, which also decides how long the pod may take to stop" $key $value) -}}
{{- end -}}
{{- end -}}
{{- if regexMatch `(?m)^\s*(server\.)?(http|grpc|metrics|admin)\s*=\s*["']` $server.config -}}
{{- fail "server.config sets an address of [server]: the chart sets `http`, `grpc`, `metrics` and `admin`, remove them" -}}
{{- end -}}
{{- if regexMatch `(?m)^\s*(server\.)?watch_config\s*=` $server.config -}}
{{- fail "server.config sets `watch_config`: set `server.configChange` to `watch` or `restart` instead" -}}
{{- end -}}
{{- if and (or $server.repository.url $server.repository.claim $server.repository.fromSources) (regexMatch `(?m)^\s*(repository\.)?(path|cache)\s*=\s*["']` $server.config) -}}
{{- fail "server.config sets `path` or `cache` of [repository], and so does `server.repository`: remove one of them" -}}
{{- end -}}
{{- $set := list -}}
{{- range include "tessera.server.environment" . | fromYamlArray -}}
{{- $set = append $set .name -}}
{{- end -}}
{{- range $server.env -}}
{{- if has .name $set -}}
{{- fail (printf "server.env sets `%s` again: the chart or an earlier entry sets it already" .name) -}}
{{- end -}}
{{- $set = append $set .name -}}
{{- end -}}
{{- if and (eq $server.kind "DaemonSet") (ne (int $server.replicas) 1) (not (kindIs "invalid" $server.replicas)) -}}
{{- fail "server.replicas: a DaemonSet runs one server on each node that `server.nodeSelector` allows, remove the number" -}}
{{- end -}}
{{- if and $server.cache.volume (not $server.repository.url) (not $server.repository.fromSources) -}}
{{- fail "server.cache.volume: only a repository at a URL, or from sources, has a cache, expected `server.repository.url` to be set as well" -}}
{{- end -}}
{{- if and $server.repository.fromSources (or $server.repository.url $server.repository.claim) -}}
{{- fail "server.repository.fromSources: agents copy the files of models, expected no `url` and no `claim`" -}}
{{- end -}}
{{- if and $server.repository.fromSources (not .Values.fleet.enabled) -}}
{{- fail "server.repository.fromSources: agents of a fleet copy the files of models, expected `fleet.enabled` to be true" -}}
{{- end -}}
{{- if and (or .Values.networkPolicy.clients .Values.networkPolicy.monitoring) (not .Values.networkPolicy.enabled) -}}
{{- fail "networkPolicy: lists peers, but all are admitted without a policy: expected `networkPolicy.enabled` to be true" -}}
{{- end -}}
{{- if and (eq .Values.monitoring.monitor "ServiceMonitor") .Values.fleet.enabled -}}
{{- fail "monitoring.monitor: expected `PodMonitor` with `fleet.enabled`, got `ServiceMonitor`, which would not see the leaders" -}}
{{- end -}}
{{- if and .Values.fleet.enabled $server.keysSecret (not .Values.fleet.agent.keySecret) -}}
{{- fail "fleet.agent.keySecret: expected the name of a secret with a key of the role `operate`, because `server.keysSecret` is set" -}}
{{- end -}}
{{- end -}}
