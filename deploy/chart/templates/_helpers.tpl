{{/* Labels of every object. */}}
{{- define "redbox.labels" -}}
app.kubernetes.io/part-of: red-box
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The labels of a controller's objects: (dict "root" $ "name" "redbox-operator"). */}}
{{- define "redbox.labelsOf" -}}
{{ include "redbox.selector" . }}
{{ include "redbox.labels" .root }}
{{- end }}

{{- define "redbox.selector" -}}
app.kubernetes.io/name: {{ .name }}
{{- end }}

{{/* An image: (dict "root" $ "name" "redbox-operator"). */}}
{{- define "redbox.image" -}}
{{- $images := .root.Values.images -}}
{{- $registry := required "images.registry is empty: name the registry that the images were pushed to" $images.registry -}}
{{ $registry }}/{{ .name }}:{{ $images.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Hosted Slurm's image for Controllers that name none. Its tag begins with the release of Slurm. */}}
{{- define "redbox.slurmImage" -}}
{{ .Values.images.registry }}/redbox-slurm:26.05-{{ .Values.images.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The name of an object that no namespace holds. Of installations that are limited to some namespaces there may be
     several in a cluster: (dict "root" $ "name" "redbox-operator"). */}}
{{- define "redbox.clusterwide" -}}
{{ .name }}{{ if .root.Values.watchNamespaces }}-{{ .root.Release.Namespace }}{{ end }}
{{- end }}

{{/* The driver in the PersistentVolumes of provisioner redbox.dev/directory; a driver's name has no slash. */}}
{{- define "redbox.volumeDriver" -}}
directory.redbox.dev
{{- end }}

{{/* As a service account is called in a request. */}}
{{- define "redbox.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:{{ .name }}
{{- end }}

{{/* A role and its binding to a service account of this release's namespace.
     (dict "root" $ "name" NAME "account" ACCOUNT "rules" TEMPLATE "namespace" NAMESPACE or "" "annotations" (dict)) */}}
{{- define "redbox.grant" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
{{- range $what := list $kind (printf "%sBinding" $kind) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $what }}
metadata:
  name: {{ $.name }}
  {{- with $.namespace }}
  namespace: {{ . }}
  {{- end }}
  labels: {{- include "redbox.labelsOf" (dict "root" $.root "name" $.account) | nindent 4 }}
  {{- with $.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if eq $what $kind }}
rules: {{- include $.rules $.root | nindent 2 }}
{{- else }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $.name }}
subjects:
  - kind: ServiceAccount
    name: {{ $.account }}
    namespace: {{ $.root.Release.Namespace }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same in all namespaces, or in each that is watched. */}}
{{- define "redbox.grantWhereWatched" -}}
{{- if .root.Values.watchNamespaces }}
{{- range .root.Values.watchNamespaces }}
{{- include "redbox.grant" (merge (dict "namespace" . "name" (printf "%s-%s" $.name $.root.Release.Namespace)) $) }}
{{- end }}
{{- else }}
{{- include "redbox.grant" (merge (dict "namespace" "") .) }}
{{- end }}
{{- end }}

{{/* Unix users on the nodes, each with a group: no two programs share one, nor one of companions (operator.companionUsers).
     Above systemd's dynamic users, where no distribution has accounts; red-box has its own, 65532. */}}
{{- define "redbox.users" -}}
redbox-operator: 65521
redbox-resourced: 65522
redbox-crds: 65523
redbox-uninstall: 65524
redbox-hosting: 65525
redbox-hosting-crds: 65526
redbox-hosting-uninstall: 65527
{{- end }}

{{/* What Pod Security's level "restricted" asks of a pod, and of a container. */}}
{{- define "redbox.podSecurity" -}}
{{- $user := index (include "redbox.users" . | fromYaml) .name }}
runAsNonRoot: true
runAsUser: {{ $user }}
runAsGroup: {{ $user }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "redbox.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where a controller's pod may go: its values. */}}
{{- define "redbox.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* The environment that both controllers have. */}}
{{- define "redbox.environment" -}}
- name: REDBOX_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: REDBOX_SERVICE_ACCOUNT
  valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}
- name: REDBOX_WATCH_NAMESPACES
  value: {{ join "," .Values.watchNamespaces | quote }}
- name: REDBOX_HEALTH_PORT
  value: "8080"
{{- end }}

{{/* Alive as long as it answers; ready when it holds its Lease and sees what it must. */}}
{{- define "redbox.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}
