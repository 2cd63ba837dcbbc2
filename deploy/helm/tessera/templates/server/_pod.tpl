{{/* Variables of the server. The environment wins over the file. */}}
{{- define "tessera.server.environment" -}}
{{- $server := .Values.server -}}
# Other pods reach all addresses but `admin`, which is for this pod.
- {name: TESSERA_SERVER_HTTP, value: "0.0.0.0:8000"}
- {name: TESSERA_SERVER_GRPC, value: "0.0.0.0:8001"}
- {name: TESSERA_SERVER_METRICS, value: "0.0.0.0:8002"}
- {name: TESSERA_SERVER_ADMIN, value: "127.0.0.1:8003"}
- {name: TESSERA_SERVER_LAME_DUCK, value: "{{ $server.lameDuckSeconds }}s"}
- {name: TESSERA_SERVER_GRACE, value: "{{ $server.graceSeconds }}s"}
- {name: TESSERA_SERVER_WATCH_CONFIG, value: "{{ eq $server.configChange "watch" }}"}
{{- if $server.repository.url }}
- {name: TESSERA_REPOSITORY_PATH, value: {{ $server.repository.url | quote }}}
- {name: TESSERA_REPOSITORY_CACHE, value: /var/cache/tessera}
{{- else if or $server.repository.claim $server.repository.fromSources }}
- {name: TESSERA_REPOSITORY_PATH, value: /models}
{{- end }}
{{- if .Values.fleet.enabled }}
# The agent loads the models of the plan.
- {name: TESSERA_REPOSITORY_LOAD, value: explicit}
# Pickers form batches: a node waits for all requests of one.
- {name: TESSERA_FLEET_BATCH_MARKS, value: "true"}
{{- end }}
{{- if or $server.gpus.count $server.deviceClaim.enabled }}
- {name: TESSERA_DEVICES_GPUS, value: auto}
{{- end }}
{{- if $server.tlsSecret }}
- {name: TESSERA_TLS_CERT, value: /etc/tessera-tls/tls.crt}
- {name: TESSERA_TLS_KEY, value: /etc/tessera-tls/tls.key}
- {name: TESSERA_TLS_LISTENERS, value: '["http", "grpc", "metrics"]'}
{{- end }}
{{- if $server.keysSecret }}
- {name: TESSERA_IDENTITY_KEYS, value: /etc/tessera-keys/keys}
{{- end }}
{{- end -}}

{{/* The pod of a server, for the Deployment and the DaemonSet. */}}
{{- define "tessera.server.pod" -}}
{{- $name := include "tessera.name" . -}}
{{- $server := .Values.server -}}
{{- $scheme := ternary "HTTPS" "HTTP" (ne $server.tlsSecret "") -}}
metadata:
  labels:
    {{- include "tessera.labels" (list . "server") | nindent 4 }}
    {{- with $server.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: server
    {{- if eq $server.configChange "restart" }}
    tessera.dev/config-sha256: {{ sha256sum $server.config }}
    {{- end }}
    {{- with $server.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $name }}-server
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Longer than the server needs for the lame duck and the grace together, as in deploy/systemd and deploy/compose.yaml.
  # A preStop hook is not needed: the server itself goes on serving for the lame duck after SIGTERM.
  terminationGracePeriodSeconds: {{ add $server.lameDuckSeconds $server.graceSeconds 20 }}
  securityContext:
    {{- include "tessera.podSecurity" . | nindent 4 }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $server.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $server.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $server.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $server.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq $server.kind "Deployment" }}
  {{- if or $server.affinity $server.onePodPerNode }}
  affinity:
    {{- with omit $server.affinity "podAntiAffinity" }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- $others := $server.affinity.podAntiAffinity | default dict }}
    {{- if or $others $server.onePodPerNode }}
    podAntiAffinity:
      {{- with omit $others "requiredDuringSchedulingIgnoredDuringExecution" }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- if or $others.requiredDuringSchedulingIgnoredDuringExecution $server.onePodPerNode }}
      requiredDuringSchedulingIgnoredDuringExecution:
        {{- with $others.requiredDuringSchedulingIgnoredDuringExecution }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- if $server.onePodPerNode }}
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "tessera.selector" (list . "server") | nindent 14 }}
        {{- end }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- with $server.spreadOver }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "tessera.selector" (list $ "server") | nindent 10 }}
  {{- end }}
  {{- else }}
  {{- with $server.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- if $server.deviceClaim.enabled }}
  resourceClaims:
    - name: devices
      resourceClaimTemplateName: {{ $name }}-devices
  {{- end }}
  {{- if .Values.fleet.enabled }}
  initContainers:
    {{- include "tessera.agent.container" . | nindent 4 }}
  {{- end }}
  containers:
    - name: server
      image: {{ include "tessera.image" (list . .Values.image) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/tessera/tessera.toml]
      env:
        {{- include "tessera.server.environment" . | nindent 8 }}
        {{- with $server.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $server.envFrom }}
      envFrom: {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: http, containerPort: 8000}
        - {name: grpc, containerPort: 8001}
        - {name: metrics, containerPort: 8002}
      # A repository at a URL is copied before the server listens, which may take as long as with systemd: 15 minutes.
      startupProbe:
        httpGet: {path: /v2/health/live, port: http, scheme: {{ $scheme }}}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 450
      livenessProbe:
        httpGet: {path: /v2/health/live, port: http, scheme: {{ $scheme }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /v2/health/ready, port: http, scheme: {{ $scheme }}}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      resources:
        {{- $resources := deepCopy $server.resources }}
        {{- if $server.gpus.count }}
        {{- $_ := set $resources "limits" (merge (dict $server.gpus.resource $server.gpus.count) ($resources.limits | default dict)) }}
        {{- end }}
        {{- if $server.deviceClaim.enabled }}
        {{- $_ := set $resources "claims" (list (dict "name" "devices")) }}
        {{- end }}
        {{- toYaml $resources | nindent 8 }}
      securityContext:
        {{- include "tessera.containerSecurity" . | nindent 8 }}
      volumeMounts:
        # The folder, not the file: Kubernetes does not update mounts of single files.
        - {name: config, mountPath: /etc/tessera, readOnly: true}
        - {name: state, mountPath: /var/lib/tessera}
        - {name: temporary, mountPath: /tmp}
        {{- if $server.repository.url }}
        - {name: cache, mountPath: /var/cache/tessera}
        {{- else if $server.repository.claim }}
        - name: models
          mountPath: /models
          readOnly: true
          {{- with $server.repository.subPath }}
          subPath: {{ . | quote }}
          {{- end }}
        {{- else if $server.repository.fromSources }}
        - {name: models, mountPath: /models, readOnly: true}
        {{- end }}
        {{- if $server.tlsSecret }}
        - {name: tls, mountPath: /etc/tessera-tls, readOnly: true}
        {{- end }}
        {{- if $server.keysSecret }}
        - {name: keys, mountPath: /etc/tessera-keys, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ $name }}-config}
    - name: state
      emptyDir: {sizeLimit: 1Gi}
    - name: temporary
      emptyDir: {sizeLimit: 1Gi}
    {{- if $server.repository.url }}
    - name: cache
      {{- if $server.cache.volume }}
      {{- toYaml $server.cache.volume | nindent 6 }}
      {{- else }}
      emptyDir: {sizeLimit: {{ $server.cache.sizeLimit }}}
      {{- end }}
    {{- else if $server.repository.claim }}
    - name: models
      persistentVolumeClaim: {claimName: {{ $server.repository.claim }}, readOnly: true}
    {{- else if $server.repository.fromSources }}
    - name: models
      {{- if $server.cache.volume }}
      {{- toYaml $server.cache.volume | nindent 6 }}
      {{- else }}
      emptyDir: {sizeLimit: {{ $server.cache.sizeLimit }}}
      {{- end }}
    {{- end }}
    {{- with $server.tlsSecret }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- with $server.keysSecret }}
    - name: keys
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.fleet.enabled }}
    - {{- include "tessera.tokenVolume" . | nindent 6 }}
    {{- with .Values.fleet.agent.keySecret }}
    - name: agent-key
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- end }}
{{- end -}}
