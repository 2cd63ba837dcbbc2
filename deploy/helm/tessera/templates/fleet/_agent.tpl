{{/* The agent next to a server. It starts before the server and stops after it, so it reports how the server drains. */}}
{{- define "tessera.agent.container" -}}
{{- $agent := .Values.fleet.agent -}}
- name: agent
  restartPolicy: Always
  image: {{ include "tessera.image" (list . .Values.fleet.image) }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/usr/bin/tessera-fleet]
  args:
    - agent
    - --namespace=$(NAMESPACE)
    - --node=$(NODE)
    - --admin=127.0.0.1:8003
    - --metrics=0.0.0.0:9005
    # The last plan, from which the agent starts while the API server cannot be reached.
    - --state=/var/lib/tessera-agent
    {{- if $agent.keySecret }}
    - --key-file=/etc/tessera-agent/key
    {{- end }}
    {{- if .Values.server.repository.fromSources }}
    - --repository=/models
    {{- end }}
    {{- with $agent.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    {{- with $agent.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $agent.envFrom }}
  envFrom: {{- toYaml . | nindent 4 }}
  {{- end }}
  resources: {{- toYaml $agent.resources | nindent 4 }}
  securityContext:
    {{- include "tessera.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: state, mountPath: /var/lib/tessera-agent, subPath: agent}
    - {{- include "tessera.tokenMount" . | nindent 6 }}
    {{- if .Values.server.repository.fromSources }}
    - {name: models, mountPath: /models}
    {{- end }}
    {{- if $agent.keySecret }}
    - {name: agent-key, mountPath: /etc/tessera-agent, readOnly: true}
    {{- end }}
{{- end -}}
