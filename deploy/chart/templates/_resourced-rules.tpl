{{/* resourced's rights, all of them. */}}

{{/* In the namespaces that it watches: pods that are bound to its nodes, for which it is the kubelet. */}}
{{- define "redbox.resourced.namespaced" -}}
- apiGroups: [redbox.dev, wlm.sylabs.io, slurm.sylabs.io]
  resources: [slurmjobs, wlmjobs]
  verbs: [get]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if .Values.admission.tokens }}
# What these may be for is limited by the policy redbox-tokens.
- apiGroups: [""]
  resources: [serviceaccounts/token]
  verbs: [create]
{{- end }}
{{- end }}

{{/* With pods, in all namespaces as well. What may change of a pod is limited by the policy redbox-pods. */}}
{{- define "redbox.resourced.pods" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch]
# Which ones, is limited by the policy redbox-volumes.
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
# Which ones, is limited by the policy redbox-slices.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch, create, patch, delete]
# The condition PodsReady.
- apiGroups: [redbox.dev]
  resources: [slurmclusters/status]
  verbs: [patch]
{{- end }}

{{/* With pods, in each of the listed namespaces: what pods there refer to. It lists and watches metadata alone. */}}
{{- define "redbox.resourced.references" -}}
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch]
{{- end }}

{{/* Of kinds that no namespace holds. Which nodes, and what of them, is limited by the policy redbox-nodes. */}}
{{- define "redbox.resourced.clusterwide" -}}
- apiGroups: [redbox.dev]
  resources: [slurmclusters]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
# To ask for a serving certificate as a node that there cannot be (no name of a Node has a `_`: it could read what pods on
# it refer to); an administrator approves it.
- apiGroups: [""]
  resources: [users]
  resourceNames: ["system:node:redbox_virtual"]
  verbs: [impersonate]
- apiGroups: [""]
  resources: [groups]
  resourceNames: ["system:nodes"]
  verbs: [impersonate]
# Whether a client of the kubelet API may read logs.
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}

{{/* The heartbeats of its nodes; that they are of no other is the policy redbox-leases' to see to. */}}
{{- define "redbox.resourced.heartbeats" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create, patch, delete]
{{- end }}

{{/* In its own namespace: its Lease, and tokens for itself. */}}
{{- define "redbox.resourced.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [redbox-resourced]
  verbs: [get, update]
- apiGroups: [""]
  resources: [serviceaccounts/token]
  resourceNames: [redbox-resourced]
  verbs: [create]
{{- end }}
