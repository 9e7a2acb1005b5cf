{{/*
The Deployment of a controller. It is given: root, name, values (replicas, resources and more, as under operator), env, and
where it has more than others: ports, mounts, volumes.
*/}}
{{- define "redbox.controllerDeployment" }}
{{- $name := dict "root" .root "name" .name }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "redbox.labelsOf" $name | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  # A new one could write nothing before the old one gives its Lease up.
  strategy:
    type: Recreate
  selector:
    matchLabels: {{- include "redbox.selector" $name | nindent 6 }}
  template:
    metadata:
      labels: {{- include "redbox.labelsOf" $name | nindent 8 }}
      {{- with .values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      {{- with .root.Values.images.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "redbox.podSecurity" $name | nindent 8 }}
      {{- include "redbox.placement" .values | nindent 6 }}
      containers:
        - name: {{ trimPrefix "redbox-" .name }}
          image: {{ include "redbox.image" $name }}
          imagePullPolicy: {{ .root.Values.images.pullPolicy }}
          args: [run]
          env: {{- trim .env | nindent 12 }}
          ports:
            - name: http
              containerPort: 8080
            {{- with .ports }}
            {{- trim . | nindent 12 }}
            {{- end }}
          {{- include "redbox.probes" .root | nindent 10 }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext: {{- include "redbox.containerSecurity" .root | nindent 12 }}
          {{- with .mounts }}
          volumeMounts: {{- trim . | nindent 12 }}
          {{- end }}
      {{- with .volumes }}
      volumes: {{- trim . | nindent 8 }}
      {{- end }}
{{- end }}
