{{- define "tessera.name" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select the pods of a component. Call with (list $ "server"). They never change: selectors cannot. */}}
{{- define "tessera.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: tessera
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "tessera.labels" -}}
{{- $root := index . 0 -}}
{{ include "tessera.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The image. Call with (list $ IMAGE), where fields of IMAGE that are empty come from .Values.image. */}}
{{- define "tessera.image" -}}
{{- $root := index . 0 -}}
{{- $image := $root.Values.image -}}
{{- $own := index . 1 -}}
{{- if or $own.repository $own.tag $own.digest -}}
{{- $image = dict "repository" ($own.repository | default $image.repository) "tag" $own.tag "digest" $own.digest -}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tessera.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "tessera.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* A token of the service account for one container. Pods do not mount it by themselves, so other containers do not see it. */}}
{{- define "tessera.tokenVolume" -}}
name: token
projected:
  defaultMode: 0440
  sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap:
        name: kube-root-ca.crt
        items: [{key: ca.crt, path: ca.crt}]
    - downwardAPI:
        items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]
{{- end -}}

{{- define "tessera.tokenMount" -}}
name: token
mountPath: /var/run/secrets/kubernetes.io/serviceaccount
readOnly: true
{{- end -}}
