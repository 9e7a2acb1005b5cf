{{/* A hook: a Job of a controller's image, with an account that has its rights for as long as it runs.
     (dict "root" $ "name" NAME "event" EVENT "image" IMAGE "arguments" (list ...)) */}}
{{- define "redbox.hookAnnotations" -}}
helm.sh/hook: {{ .event }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{- define "redbox.hookAccount" -}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "redbox.labelsOf" . | nindent 4 }}
  annotations: {{- include "redbox.hookAnnotations" (merge (dict "weight" "-10") .) | nindent 4 }}
{{- end }}

{{- define "redbox.hookJob" -}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "redbox.labelsOf" . | nindent 4 }}
  annotations:
    {{- include "redbox.hookAnnotations" (merge (dict "weight" "0") .) | nindent 4 }}
    helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 600
  template:
    metadata:
      labels: {{- include "redbox.labelsOf" . | nindent 8 }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ .name }}
      {{- with .root.Values.images.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "redbox.podSecurity" . | nindent 8 }}
      {{- include "redbox.placement" .root.Values.operator | nindent 6 }}
      containers:
        - name: hook
          image: {{ include "redbox.image" (dict "root" .root "name" .image) }}
          imagePullPolicy: {{ .root.Values.images.pullPolicy }}
          args: {{ toJson .arguments }}
          env:
            {{- include "redbox.environment" .root | nindent 12 }}
            {{- if eq .image "redbox-hosting" }}
            - name: REDBOX_SERVE_NAMESPACES
              value: {{ join "," .root.Values.hosting.namespaces | quote }}
            {{- end }}
          resources: {{- toYaml .root.Values.operator.resources | nindent 12 }}
          securityContext: {{- include "redbox.containerSecurity" .root | nindent 12 }}
{{- end }}
