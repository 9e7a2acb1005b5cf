{{/* Made by `make generate` from deploy/chart; do not edit. */}}
{{/* The pod of a red-box and what it is reached by: of this chart, and of chart-personal and chart-slurm, which
     have copies (`make generate`). */}}

{{/* One StatefulSet: (dict "name" NAME "namespace" NAMESPACE "labels" TEXT "podLabels" TEXT "selector" TEXT "annotations" DICT
     "serviceAccount" NAME "images" DICT "image" TEXT "placement" TEXT "user" NUMBER "maintenance" BOOL "resources" DICT "identity" SECRET
     "tls" SECRET "settings" CONFIGMAP "ssh" VOLUME "more" {MOUNT-PATH-NAME: VOLUME} "journal" DICT) */}}
{{- define "redboxPod.statefulSet" -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- .labels | nindent 4 }}
spec:
  # One, never two: the journal has one writer, and the old pod is gone before a new one starts.
  replicas: 1
  # Of one pod nothing is parallel; but a pod that never gets ready would hold back the upgrade that repairs it.
  podManagementPolicy: Parallel
  serviceName: {{ .name }}
  selector:
    matchLabels: {{- .selector | nindent 6 }}
  template:
    metadata:
      labels: {{- .podLabels | nindent 8 }}
      annotations: {{- toYaml .annotations | nindent 8 }}
    spec:
      serviceAccountName: {{ .serviceAccount }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with .images.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: {{ .user }}
        runAsGroup: {{ .user }}
        fsGroup: {{ .user }}
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile:
          type: RuntimeDefault
      {{- with .placement }}
      {{- . | nindent 6 }}
      {{- end }}
      initContainers:
        - name: journal
          image: {{ .image }}
          imagePullPolicy: {{ .images.pullPolicy }}
          command: [/usr/bin/install, -d, -m, "0700", /var/lib/redbox/journal]
          resources:
            requests: {cpu: 10m, memory: 16Mi}
            limits: {memory: 64Mi}
          securityContext: {{- include "redboxPod.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: journal, mountPath: /var/lib/redbox}
      containers:
        - name: redbox
          image: {{ .image }}
          imagePullPolicy: {{ .images.pullPolicy }}
          {{- if .maintenance }}
          command: [/usr/bin/sleep, infinity]
          {{- else }}
          args: [serve]
          {{- end }}
          ports:
            - {name: https, containerPort: 8443}
          {{- if not .maintenance }}
          # Five minutes to read a large journal, also while all clients of the one before come back together.
          startupProbe:
            httpGet: {path: /healthz, port: https, scheme: HTTPS}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 60
          # Alive as long as it answers. What is wrong beyond that, a new start does not cure.
          livenessProbe:
            httpGet: {path: /healthz, port: https, scheme: HTTPS}
            periodSeconds: 20
            timeoutSeconds: 5
          # Shown, not acted on: the Service leads to it also while Slurm is away, for the states that it has.
          readinessProbe:
            httpGet: {path: /readyz, port: https, scheme: HTTPS}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- end }}
          resources: {{- toYaml .resources | nindent 12 }}
          securityContext: {{- include "redboxPod.containerSecurity" . | nindent 12 }}
          volumeMounts:
            - {name: journal, mountPath: /var/lib/redbox}
            - {name: settings, mountPath: /etc/redbox, readOnly: true}
            - {name: identity, mountPath: /run/redbox/identity, readOnly: true}
            - {name: tls, mountPath: /run/redbox/tls, readOnly: true}
            - {name: ssh, mountPath: /run/redbox/ssh, readOnly: true}
            - {name: api, mountPath: /run/redbox/api, readOnly: true}
            {{- range $volume, $_ := .more }}
            - {name: {{ $volume }}, mountPath: /run/redbox/{{ $volume }}, readOnly: true}
            {{- end }}
      volumes:
        - name: settings
          configMap: {name: {{ .settings | default .name }}}
        - name: identity
          secret:
            secretName: {{ .identity }}
            defaultMode: 0400
            items: [{key: mark.secret, path: mark.secret}]
        - name: tls
          secret:
            secretName: {{ .tls }}
            defaultMode: 0400
            items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
        - {{- toYaml (merge (dict "name" "ssh") .ssh) | nindent 10 }}
        # For the API server's public keys, which every service account may read.
        - name: api
          projected:
            defaultMode: 0400
            sources:
              - serviceAccountToken: {path: token, expirationSeconds: 3600}
              - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
        {{- range $volume, $source := .more }}
        - {{- toYaml (merge (dict "name" $volume) $source) | nindent 10 }}
        {{- end }}
  volumeClaimTemplates:
    - apiVersion: v1
      kind: PersistentVolumeClaim
      metadata:
        name: journal
      spec:
        accessModes: [ReadWriteOncePod]
        {{- if not (kindIs "invalid" .journal.storageClass) }}
        storageClassName: {{ .journal.storageClass | quote }}
        {{- end }}
        resources:
          requests: {storage: {{ .journal.size }}}
{{- end }}

{{- define "redboxPod.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* What its NetworkPolicy lets it reach: names, the API server's keys, and the login node; a policy names addresses, so that the
     first two lead to any. (dict "ssh" DICT "apiServer" URL) */}}
{{- define "redboxPod.egress" -}}
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
- ports: [{port: 443}, {port: 6443}{{ with regexFind ":[0-9]+$" .apiServer }}, {port: {{ trimPrefix ":" . }}}{{ end }}]
{{- $next := .ssh.jump | default .ssh }}
- ports: [{port: {{ int ($next.port | default 22) }}}]
  {{- with .ssh.cidrs }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
{{- end }}
