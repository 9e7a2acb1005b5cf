{{/* The Controller, the LoginSet and the Accounting have the release's name. */}}
{{- define "slurm.name" -}}
{{ .Release.Name }}
{{- end }}

{{- define "slurm.redbox" -}}
{{ .Release.Name }}-redbox
{{- end }}

{{- define "slurm.slurmCluster" -}}
{{ .Values.redbox.slurmCluster | default .Release.Name }}
{{- end }}

{{- define "slurm.homes" -}}
{{ .Values.homes.existingClaim | default (printf "%s-homes" .Release.Name) }}
{{- end }}

{{- define "slurm.users" -}}
{{ .Release.Name }}-people
{{- end }}

{{/* A token is for one red-box of this Kubernetes. Not secret, and the same at each rendering. */}}
{{- define "slurm.audience" -}}
redbox.dev/{{ include "slurm.slurmCluster" . }}/{{ sha256sum (printf "%s/%s" .Release.Namespace .Release.Name) | trunc 16 }}
{{- end }}

{{- define "slurm.labels" -}}
app.kubernetes.io/part-of: red-box-slurm
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "slurm.redboxSelector" -}}
app.kubernetes.io/name: redbox-server
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The metadata of an object: (dict "root" $ "name" NAME). Those of Slurm stay where its workers are to run on. */}}
{{- define "slurm.metadata" -}}
name: {{ .name }}
{{- if not .clusterwide }}
namespace: {{ .root.Release.Namespace }}
{{- end }}
labels: {{- include "slurm.labels" .root | nindent 2 }}
{{- with .annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or .keep (and .slurm (eq .root.Values.uninstall.workers "KeepRunning")) }}
annotations: {helm.sh/resource-policy: keep}
{{- end }}
{{- end }}

{{- define "slurm.image" -}}
{{ required "images.registry is empty: name the registry that the images were pushed to" .root.Values.images.registry }}/{{ .name }}:{{ .root.Values.images.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* A Job of the operator's program: (dict "root" $ "name" NAME "account" ACCOUNT "user" UID "arguments" LIST). */}}
{{- define "slurm.jobSpec" -}}
backoffLimit: {{ .retries | default 6 }}
template:
  metadata:
    labels: {{- include "slurm.labels" .root | nindent 6 }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ .account }}
    enableServiceLinks: false
    {{- with .root.Values.images.pullSecrets }}
    imagePullSecrets: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      runAsNonRoot: true
      runAsUser: 65528
      runAsGroup: 65528
      seccompProfile: {type: RuntimeDefault}
    containers:
      - name: redbox-hosting
        image: {{ include "slurm.image" (dict "root" .root "name" "redbox-hosting") }}
        imagePullPolicy: {{ .root.Values.images.pullPolicy }}
        args: {{ toJson .arguments }}
        env:
          - name: REDBOX_NAMESPACE
            valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        resources:
          requests: {cpu: 50m, memory: 64Mi}
          limits: {memory: 256Mi}
        securityContext: {{- include "redboxPod.containerSecurity" . | nindent 10 }}
{{- end }}

{{/* An account, and a Role or ClusterRole with `rules`: (dict "root" $ "name" NAME "kind" KIND "rules" TEXT "annotations" DICT) */}}
{{- define "slurm.grant" -}}
{{- $name := ternary .name (printf "%s:%s" .root.Release.Namespace .name) (eq .kind "Role") }}
{{- range $what := list .kind (printf "%sBinding" .kind) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $what }}
metadata:
  name: {{ $name }}
  {{- if eq $.kind "Role" }}
  namespace: {{ $.root.Release.Namespace }}
  {{- end }}
  labels: {{- include "slurm.labels" $.root | nindent 4 }}
  {{- with $.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- if eq $what $.kind }}
rules: {{- $.rules | nindent 2 }}
{{- else }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ $.kind }}, name: {{ $name }}}
subjects:
  - {kind: ServiceAccount, name: {{ $.name }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
{{- end }}
{{- end }}
