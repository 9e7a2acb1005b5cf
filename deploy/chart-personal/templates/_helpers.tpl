{{/* A StatefulSet's pods have its name and a hash of 10 characters in one label, of 63 at most. */}}
{{- define "personal.name" -}}
{{- if not (regexMatch "^[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?$" .Release.Name) -}}
{{- fail (printf "the release's name %s is also that of its SlurmEndpoint and pod: take one of at most 45 characters of a-z, 0-9 and -" .Release.Name) -}}
{{- end -}}
redbox-{{ .Release.Name }}
{{- end }}

{{- define "personal.selector" -}}
app.kubernetes.io/name: {{ include "personal.name" . }}
{{- end }}

{{- define "personal.labels" -}}
{{ include "personal.selector" . }}
app.kubernetes.io/part-of: red-box
app.kubernetes.io/component: redbox-server
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "personal.image" -}}
{{ .Values.images.registry }}/redbox-server:{{ .Values.images.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The Unix user on the nodes. Of an installed one it stays: the journal is its. */}}
{{- define "personal.user" -}}
{{- $installed := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "personal.name" .) | default dict -}}
{{- $before := dig "spec" "template" "spec" "securityContext" "runAsUser" 0 $installed -}}
{{- $ofNamespace := add 1500000000 (mod (adler32sum .Release.Namespace | int64) 300000000) -}}
{{ .Values.runAsUser | default $before | default $ofNamespace | int64 }}
{{- end }}

{{- define "personal.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* red-box's settings. The observer is the account itself: it sees in Slurm's queue what its user sees. */}}
{{- define "personal.settings" -}}
{{- $ssh := dict "host" .Values.ssh.host "port" (int .Values.ssh.port) "known_hosts" "/etc/redbox/known_hosts"
      "key_directory" "/run/redbox/ssh" "observer" .Values.ssh.user "accounts" "login_node" -}}
{{- with .Values.ssh.jump -}}
{{- $_ := set $ssh "jump" . -}}
{{- end -}}
{{- with .Values.ssh.path -}}
{{- $_ := set $ssh "path" . -}}
{{- end -}}
{{- $operator := dict "cluster" "kubernetes" "namespaces" (list .Values.operator.namespace)
      "service_accounts" (list .Values.operator.serviceAccount) "roles" (list "operator" "reader" "requeue") -}}
{{- $own := dict "cluster" "kubernetes" "namespaces" (list .Release.Namespace) "user" .Values.ssh.user -}}
{{- with .Values.serviceAccounts -}}
{{- $_ := set $own "service_accounts" . -}}
{{- end -}}
{{- $made := dict
      "name" .Release.Name
      "listen" (dict "port" 8443 "unix_socket" nil)
      "tls" (dict "certificate_file" "/run/redbox/tls/tls.crt" "key_file" "/run/redbox/tls/tls.key")
      "callers" (dict
        "tokens_file" "/var/lib/redbox/journal/tokens.json"
        "clusters" (list (dict "name" "kubernetes" "issuer" .Values.issuer
          "audience_file" "/run/redbox/endpoint/audience"
          "jwks_url" (printf "%s/openid/v1/jwks" .Values.apiServer)
          "jwks_ca_file" "/run/redbox/api/ca.crt" "jwks_token_file" "/run/redbox/api/token")))
      "mapping" (dict "rules" (list $operator $own))
      "agents" (dict "transport" "ssh" "ssh" $ssh)
      "jobs" (dict "journal" "/var/lib/redbox/journal" "mark_secret" "/run/redbox/identity/mark.secret" "pods" false)
      "audit" (dict "file" nil) -}}
{{ toYaml (mergeOverwrite $made (deepCopy .Values.settings)) }}
{{- end }}
