{{/* The rights of hosted Slurm's operator, all of them. */}}

{{/* In each namespace that may have Slurm clusters. */}}
{{- define "redbox.hosting.namespaced" -}}
- apiGroups: [slurm.redbox.dev]
  resources: [controllers, nodesets, loginsets, restapis, accountings, tokens]
  verbs: [get, list, watch, patch]
- apiGroups: [slurm.redbox.dev]
  resources: [controllers/status, nodesets/status, loginsets/status, restapis/status, accountings/status, tokens/status]
  verbs: [patch]
# Owner references that block the owner's deletion.
- apiGroups: [slurm.redbox.dev]
  resources: [controllers/finalizers, nodesets/finalizers, loginsets/finalizers, restapis/finalizers, accountings/finalizers, tokens/finalizers]
  verbs: [update]
# Keys, certificates and tokens are made once; those that a user names are read. Never list or watch.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
# Slurm's own words when a daemon does not start.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [configmaps, services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [controllerrevisions, deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Users' homes.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# Of the claim templates of NodeSets; and how the claim of homes can be mounted.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, get]
# The label by which a policy keeps a namespace that has workers.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, patch]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [redbox-hosting]
  verbs: [get, update]
# `get` and `patch`: an event that comes again is counted.
- apiGroups: [""]
  resources: [events]
  verbs: [get, create, patch]
{{- end }}

{{/* Cordons, and machines that are lost. */}}
{{- define "redbox.hosting.nodes" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
{{- end }}

{{/* Of bindings of policies: the namespaces that may have Slurm clusters, and what is in them. */}}
{{- define "redbox.hosting.namespaces" -}}
namespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson .Values.hosting.namespaces }}}
{{- end }}
