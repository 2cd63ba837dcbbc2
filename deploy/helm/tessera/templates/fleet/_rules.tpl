{{/* What each part of a fleet may do in its namespace, and no more. */}}

{{- define "tessera.fleet.leaderRules" }}
# Kubernetes cannot limit `create` to a name.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ . }}]
  verbs: [get, update]
- apiGroups: [tessera.dev]
  resources: [models, servingpools]
  verbs: [get, list, watch]
- apiGroups: [tessera.dev]
  resources: [models/status, servingpools/status]
  verbs: [patch]
- apiGroups: [tessera.dev]
  resources: [nodeplans]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [tessera.dev]
  resources: [nodeplans/status]
  verbs: [get]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}

{{- define "tessera.fleet.pickerRules" }}
- apiGroups: [tessera.dev]
  resources: [nodeplans]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- end }}

{{- define "tessera.fleet.agentRules" }}
- apiGroups: [tessera.dev]
  resources: [nodeplans]
  verbs: [get, list, watch, create, patch]
- apiGroups: [tessera.dev]
  resources: [nodeplans/status]
  verbs: [patch]
{{- end }}

{{/* Kubernetes nodes are in no namespace. A node that is not ready loses its models. */}}
{{- define "tessera.fleet.nodeRules" }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}
