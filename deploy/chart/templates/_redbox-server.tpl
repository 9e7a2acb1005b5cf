{{/* What a red-box of the values has, its defaults filled in. */}}
{{- define "redbox.server.defaults" -}}
ssh: {port: 22, cidrs: []}
cluster: kubernetes
issuer: https://kubernetes.default.svc.cluster.local
apiServer: https://kubernetes.default.svc
tokenReview: false
usersGroup: redbox-users
rules: []
journal: {size: 1Gi, storageClass: null}
tls: {secret: "", issuerRef: {}, caBundle: ""}
names: []
service: {type: ClusterIP, clusterIP: "", annotations: {}}
identitySecret: ""
audience: ""
metricsToken: ""
slurmMetrics: []
settings: {}
maintenance: false
slurmCluster: {}
resources:
  requests: {cpu: 50m, memory: 192Mi}
  limits: {memory: 1Gi}
{{- end }}

{{/* Names and addresses of its certificate: (dict "name" "redbox-hpc1" "namespace" NAMESPACE "more" NAMES). */}}
{{- define "redbox.server.names" -}}
{{- $host := printf "%s.%s.svc" .name .namespace -}}
{{- $names := list $host (printf "%s.cluster.local" $host) (printf "%s.%s" .name .namespace) .name "localhost" -}}
{{- $addresses := list "127.0.0.1" -}}
{{- range .more -}}
{{- if or (contains ":" .) (regexMatch "^[0-9.]+$" .) -}}
{{- $addresses = append $addresses . -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{ dict "names" $names "addresses" $addresses | toJson }}
{{- end }}

{{/* red-box's settings: (dict "root" $ "name" "hpc1" "spec" SPEC "audience" AUDIENCE). */}}
{{- define "redbox.server.settings" -}}
{{- $api := .spec.apiServer -}}
{{- $cluster := dict "name" .spec.cluster "issuer" .spec.issuer "audience" .audience
      "jwks_url" (printf "%s/openid/v1/jwks" $api)
      "jwks_ca_file" "/run/redbox/api/ca.crt" "jwks_token_file" "/run/redbox/api/token" -}}
{{- if .spec.tokenReview -}}
{{- $_ := set $cluster "token_review"
      (dict "server" $api "ca_file" "/run/redbox/api/ca.crt" "token_file" "/run/redbox/api/token") -}}
{{- end -}}
{{- $ssh := dict "host" .spec.ssh.host "port" (int .spec.ssh.port) "known_hosts" "/etc/redbox/known_hosts"
      "observer" .spec.observer "accounts" "login_node" -}}
{{- with .spec.ssh.jump -}}
{{- $_ := set $ssh "jump" . -}}
{{- end -}}
{{- with .spec.credentials.ca -}}
{{- $_ := set $ssh "ca_key_file" "/run/redbox/ssh/ssh-privatekey" -}}
{{- $_ := set $ssh "addresses" .addresses -}}
{{- else -}}
{{- $_ := set $ssh "key_directory" "/run/redbox/ssh" -}}
{{- end -}}
{{- $made := dict
      "name" .name
      "listen" (dict "port" 8443 "unix_socket" nil)
      "tls" (dict "certificate_file" "/run/redbox/tls/tls.crt" "key_file" "/run/redbox/tls/tls.key")
      "callers" (dict "clusters" (list $cluster) "tokens_file" "/var/lib/redbox/journal/tokens.json")
      "mapping" (dict "file" "/etc/redbox/rules.yaml" "users_group" .spec.usersGroup)
      "agents" (dict "transport" "ssh" "ssh" $ssh)
      "jobs" (dict "journal" "/var/lib/redbox/journal" "mark_secret" "/run/redbox/identity/mark.secret")
      "audit" (dict "file" nil) -}}
{{ toYaml (mergeOverwrite $made (deepCopy .spec.settings)) }}
{{- end }}

{{/* Who is who: the controllers first, then the rules of the values; those without another kind of caller are for this
     Kubernetes cluster. */}}
{{- define "redbox.server.rules" -}}
{{- $here := dict "cluster" .spec.cluster "namespaces" (list .root.Release.Namespace) -}}
{{- $roles := list "operator" "reader" -}}
{{- $rules := list (merge (dict "service_accounts" (list "redbox-operator") "roles" (append $roles "requeue")) $here) -}}
{{- if .root.Values.resourced.enabled -}}
{{- $more := ternary (append $roles "volumes") $roles .root.Values.resourced.pods.enabled -}}
{{- $rules = append $rules (merge (dict "service_accounts" (list "redbox-resourced") "roles" $more) $here) -}}
{{- end -}}
{{- range .spec.rules -}}
{{- $ofCluster := not (or (hasKey . "tokens") (hasKey . "cluster")) -}}
{{- $rules = append $rules (ternary (merge (dict "cluster" $.spec.cluster) .) . $ofCluster) -}}
{{- end -}}
{{ toYaml (dict "rules" $rules) }}
{{- end }}

{{/* One of a PodMonitor's endpoints: red-box's own metrics, or a family of Slurm's.
     (dict "name" "hpc1" "full" "redbox-hpc1" "namespace" NAMESPACE "spec" SPEC "family" FAMILY or nothing) */}}
{{- define "redbox.server.scrape" }}
- port: https
  scheme: https
  path: /metrics{{ with .family }}/slurm/{{ . }}{{ end }}
  {{- if .family }}
  interval: 60s
  scrapeTimeout: 20s
  {{- end }}
  # The dashboards and alerts select by the first; the second tells the targets of one pod apart.
  relabelings:
    - {targetLabel: cluster, replacement: {{ .name | quote }}}
    {{- with .family }}
    - {targetLabel: family, replacement: {{ . | quote }}}
    {{- end }}
  authorization:
    credentials: {name: {{ .spec.metricsToken }}, key: token}
  tlsConfig:
    serverName: {{ .full }}.{{ .namespace }}.svc
    ca:
      configMap: {name: {{ .full }}, key: ca.crt}
{{- end }}
