{{/* The operator's rights, all of them. */}}

{{/* In the namespaces that it watches. It deletes pods by uid, its own companions alone; RBAC cannot say so. */}}
{{- define "redbox.operator.namespaced" -}}
# `delete`: those whose ttlSecondsAfterFinished is over.
- apiGroups: [redbox.dev, wlm.sylabs.io, slurm.sylabs.io]
  resources: [slurmjobs, wlmjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [redbox.dev, wlm.sylabs.io, slurm.sylabs.io]
  resources: [slurmjobs/status, wlmjobs/status]
  verbs: [patch]
# Owner references that block the SlurmJob's deletion.
- apiGroups: [redbox.dev, wlm.sylabs.io, slurm.sylabs.io]
  resources: [slurmjobs/finalizers, wlmjobs/finalizers]
  verbs: [update]
- apiGroups: [redbox.dev]
  resources: [slurmendpoints]
  verbs: [get, list, watch]
- apiGroups: [redbox.dev]
  resources: [slurmendpoints/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
# The frozen requests of attempts, and the audiences of SlurmEndpoints.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, delete]
{{ include "redbox.operator.events" . }}
{{- end }}

{{/* Those about SlurmClusters, which no namespace holds, are in `default`. */}}
{{- define "redbox.operator.events" -}}
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* Of kinds that no namespace holds. */}}
{{- define "redbox.operator.clusterwide" -}}
- apiGroups: [redbox.dev]
  resources: [slurmclusters]
  verbs: [get, list, watch, patch]
- apiGroups: [redbox.dev]
  resources: [slurmclusters/status]
  verbs: [patch]
{{- if include "redbox.approvesServing" . }}
# RBAC cannot say whose requests: the operator approves those for the addresses of resourced's pods alone.
- apiGroups: [certificates.k8s.io]
  resources: [certificatesigningrequests]
  verbs: [list, watch]
- apiGroups: [certificates.k8s.io]
  resources: [certificatesigningrequests/approval]
  verbs: [patch]
- apiGroups: [certificates.k8s.io]
  resources: [signers]
  resourceNames: [kubernetes.io/kubelet-serving]
  verbs: [approve]
{{- end }}
{{- if not .Values.watchNamespaces }}
# kopf watches for kinds that are installed later.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
# Whether there is exactly one gateway, where a SlurmCluster has `holdBack`.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{- end }}
{{- end }}

{{/* Whether it approves resourced's serving certificates; empty if not. */}}
{{- define "redbox.approvesServing" -}}
{{- with .Values.resourced }}{{ if and .enabled (not .servingSecret) (dig "approveServing" true .) }}true{{ end }}{{ end }}
{{- end }}

{{/* In its own namespace: its Lease, and tokens for itself. */}}
{{- define "redbox.operator.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [redbox-operator]
  verbs: [get, update]
- apiGroups: [""]
  resources: [serviceaccounts/token]
  resourceNames: [redbox-operator]
  verbs: [create]
{{- if include "redbox.approvesServing" . }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
{{- end }}
{{- end }}
