{{/*
A Deployment of leaders, or a StatefulSet of pickers: each picker has a number, and they find each other by their headless Service.
Call with (list $ COMPONENT ARGUMENTS PORTS).
*/}}
{{- define "tessera.fleet.workload" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $own := get $root.Values.fleet $component -}}
{{- $isNumbered := eq $component "picker" -}}
apiVersion: apps/v1
kind: {{ ternary "StatefulSet" "Deployment" $isNumbered }}
metadata:
  name: {{ include "tessera.name" $root }}-{{ $component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tessera.labels" (list $root $component) | nindent 4 }}
spec:
  replicas: {{ $own.replicas }}
  selector:
    matchLabels:
      {{- include "tessera.selector" (list $root $component) | nindent 6 }}
  {{- if $isNumbered }}
  serviceName: {{ include "tessera.name" $root }}-pickers
  # All are active, so none waits for another one.
  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate}
  {{- else }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "tessera.labels" (list $root $component) | nindent 8 }}
    spec:
      serviceAccountName: {{ include "tessera.name" $root }}-{{ $component }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 30
      securityContext:
        {{- include "tessera.podSecurity" $root | nindent 8 }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      # Replicas do not share a node or a zone if there are others, so that one failure leaves another replica.
      topologySpreadConstraints:
        {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
        - maxSkew: 1
          topologyKey: {{ . }}
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "tessera.selector" (list $root $component) | nindent 14 }}
        {{- end }}
      containers:
        - name: {{ $component }}
          image: {{ include "tessera.image" (list $root $root.Values.fleet.image) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [/usr/bin/tessera-fleet]
          args:
            {{- toYaml (concat (index . 2) $own.extraArgs) | nindent 12 }}
          env:
            - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
            - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          ports:
            {{- toYaml (index . 3) | nindent 12 }}
          livenessProbe:
            httpGet: {path: /health/live, port: metrics}
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /health/ready, port: metrics}
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 2
          resources: {{- toYaml $own.resources | nindent 12 }}
          securityContext:
            {{- include "tessera.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - {{- include "tessera.tokenMount" $root | nindent 14 }}
      volumes:
        - {{- include "tessera.tokenVolume" $root | nindent 10 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "tessera.name" $root }}-{{ $component }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tessera.labels" (list $root $component) | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "tessera.selector" (list $root $component) | nindent 6 }}
{{- end -}}

{{/* A service account with its Role. Call with (list $ COMPONENT RULES). */}}
{{- define "tessera.fleet.rights" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-%s" (include "tessera.name" $root) (index . 1) -}}
{{- if ne (index . 1) "server" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tessera.labels" (list $root (index . 1)) | nindent 4 }}
automountServiceAccountToken: false
---
{{- end }}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tessera.labels" (list $root (index . 1)) | nindent 4 }}
rules:
  {{- index . 2 | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "tessera.labels" (list $root (index . 1)) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}
{{- end -}}
