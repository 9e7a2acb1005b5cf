"""The names of the fields of each kind of hosted Slurm. Made by `make generate` from the CRDs; do not edit.

By name: 0 for a field whose content is the user's, an object for one with fields, and a text for the fields
that stand under this name here, since several kinds have them.
"""

import json
from typing import Any

FIELDS: dict[str, Any] = json.loads("""
{"Controller": {"jwtKeyRef": {"name": 0, "key": 0, "optional": 0}, "jwtHs256KeyRef": {"name": 0, "key": 0,
"optional": 0}, "clusterName": 0, "slurmKeyRef": {"name": 0, "key": 0, "optional": 0}, "jwksKeyRef":
{"name": 0, "key": 0, "optional": 0}, "accountingRef": {"name": 0}, "external": 0, "externalConfig":
{"host": 0, "port": 0}, "ha": {"enabled": 0, "backups": 0}, "slurmctld": "part-5", "reconfigure": "part-5",
"logfile": "part-5", "inplaceReconfigure": 0, "template": "part-10", "service": "part-11", "extraConf": 0,
"configFileRefs": {"name": 0}, "prologScriptRefs": {"name": 0}, "epilogScriptRefs": {"name": 0},
"prologSlurmctldScriptRefs": {"name": 0}, "epilogSlurmctldScriptRefs": {"name": 0}, "persistence":
{"enabled": 0, "existingClaim": 0, "accessModes": 0, "storageClassName": 0, "volumeMode": 0, "volumeName":
0, "resources": 0, "annotations": 0, "labels": 0}, "metrics": {"enabled": 0, "serviceMonitor": {"enabled":
0, "labels": 0, "annotations": 0, "interval": 0, "scrapeTimeout": 0, "endpoints": {"path": 0, "interval": 0,
"scrapeTimeout": 0}}}, "redbox": {"profile": 0, "maxNodes": 0, "partitions": {"name": 0, "nodeSets": 0,
"default": 0, "maxTime": 0, "defaultTime": 0, "defMemPerCPU": 0, "qos": 0, "allowAccounts": 0,
"allowGroups": 0}, "users": {"configMapRef": {"name": 0}, "sssdConfRef": {"name": 0, "key": 0, "optional":
0}}, "homes": {"claimName": 0}, "tokens": {"users": 0}, "outsideAddresses": 0, "munge": {"keyRef": {"name":
0, "key": 0, "optional": 0}}, "restore": {"claimName": 0, "path": 0, "firstJobId": 0}, "trial": 0}},
"NodeSet": {"controllerRef": {"name": 0}, "replicas": 0, "scalingMode": 0, "slurmd": "part-5", "logfile":
"part-5", "ssh": {"enabled": 0, "extraSshdConfig": 0, "sssdConfRef": {"name": 0, "key": 0, "optional": 0}},
"template": "part-10", "extraConf": 0, "partition": {"enabled": 0, "config": 0}, "volumeClaimTemplates":
{"metadata": {"name": 0, "labels": 0, "annotations": 0}, "spec": {"accessModes": 0, "dataSource":
{"apiGroup": 0, "kind": 0, "name": 0}, "dataSourceRef": {"apiGroup": 0, "kind": 0, "name": 0, "namespace":
0}, "resources": {"limits": 0, "requests": 0}, "selector": {"matchExpressions": {"key": 0, "operator": 0,
"values": 0}, "matchLabels": 0}, "storageClassName": 0, "volumeAttributesClassName": 0, "volumeMode": 0,
"volumeName": 0}}, "updateStrategy": {"type": 0, "rollingUpdate": {"maxUnavailable": 0}, "scheduledUpdate":
{"startTime": 0, "duration": 0, "flags": 0}}, "revisionHistoryLimit": 0,
"persistentVolumeClaimRetentionPolicy": {"whenDeleted": 0, "whenScaled": 0}, "minReadySeconds": 0,
"ordinalPadding": 0, "pinToNode": 0, "workloadDisruptionProtection": 0, "pruneSlurmNodeRecords": 0,
"oversubscribeNode": 0, "redbox": {"sharing": 0, "onDemand": {"min": 0, "max": 0, "idleSeconds": 0,
"startSeconds": 0}, "drainTimeout": 0, "shmSize": 0}}, "LoginSet": {"controllerRef": {"name": 0},
"replicas": 0, "login": "part-5", "initconf": "part-5", "template": "part-10", "rootSshAuthorizedKeys": 0,
"extraSshdConfig": 0, "sssdConfRef": {"name": 0, "key": 0, "optional": 0}, "strategy": {"type": 0,
"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}, "service": "part-11", "redbox":
{"authorizedKeysRef": {"name": 0}, "trustedUserCaKeys": 0, "trustedUserCaKeysRef": {"name": 0, "group":
0}}}, "RestApi": {"controllerRef": {"name": 0}, "replicas": 0, "slurmrestd": "part-5", "template":
"part-10", "service": "part-11", "redbox": {"tlsSecretRef": {"name": 0}}}, "Accounting": {"jwtKeyRef":
{"name": 0, "key": 0, "optional": 0}, "jwtHs256KeyRef": {"name": 0, "key": 0, "optional": 0}, "slurmKeyRef":
{"name": 0, "key": 0, "optional": 0}, "jwksKeyRef": {"name": 0, "key": 0, "optional": 0}, "external": 0,
"externalConfig": {"host": 0, "port": 0}, "slurmdbd": "part-5", "template": "part-10", "extraConf": 0,
"service": "part-11", "storageConfig": {"host": 0, "port": 0, "database": 0, "username": 0,
"passwordKeyRef": {"name": 0, "key": 0, "optional": 0}}, "redbox": {"database": {"enabled": 0, "image": 0,
"storageClassName": 0, "size": 0}}}, "Token": {"jwtKeyRef": {"name": 0, "key": 0, "optional": 0},
"jwtHs256KeyRef": {"name": 0, "key": 0, "optional": 0}, "controllerRef": {"name": 0}, "username": 0,
"lifetime": 0, "refresh": 0, "secretRef": {"name": 0, "key": 0, "optional": 0}}, "part-0":
{"activeDeadlineSeconds": 0, "affinity": "part-12", "automountServiceAccountToken": 0, "containers":
"part-5", "dnsConfig": {"nameservers": 0, "options": {"name": 0, "value": 0}, "searches": 0}, "dnsPolicy":
0, "enableServiceLinks": 0, "evictionResponders": {"name": 0, "priority": 0}, "hostAliases": {"hostnames":
0, "ip": 0}, "hostIPC": 0, "hostNetwork": 0, "hostPID": 0, "hostUsers": 0, "hostname": 0,
"hostnameOverride": 0, "imagePullSecrets": {"name": 0}, "initContainers": "part-5", "nodeName": 0,
"nodeSelector": 0, "os": {"name": 0}, "overhead": 0, "preemptionPolicy": 0, "priority": 0,
"priorityClassName": 0, "readinessGates": {"conditionType": 0}, "resourceClaims": {"name": 0,
"resourceClaimName": 0, "resourceClaimTemplateName": 0}, "resources": {"claims": {"name": 0, "request": 0},
"limits": 0, "requests": 0}, "restartPolicy": 0, "runtimeClassName": 0, "schedulerName": 0,
"schedulingGates": {"name": 0}, "schedulingGroup": {"podGroupName": 0}, "securityContext": "part-4",
"serviceAccount": 0, "serviceAccountName": 0, "setHostnameAsFQDN": 0, "shareProcessNamespace": 0,
"subdomain": 0, "terminationGracePeriodSeconds": 0, "tolerations": {"effect": 0, "key": 0, "operator": 0,
"tolerationSeconds": 0, "value": 0}, "topologySpreadConstraints": {"labelSelector": {"matchExpressions":
{"key": 0, "operator": 0, "values": 0}, "matchLabels": 0}, "matchLabelKeys": 0, "maxSkew": 0, "minDomains":
0, "nodeAffinityPolicy": 0, "nodeTaintsPolicy": 0, "topologyKey": 0, "whenUnsatisfiable": 0}, "volumes":
"part-7"}, "part-1": {"allocateLoadBalancerNodePorts": 0, "clusterIP": 0, "clusterIPs": 0, "externalName":
0, "externalTrafficPolicy": 0, "healthCheckNodePort": 0, "internalTrafficPolicy": 0, "ipFamilies": 0,
"ipFamilyPolicy": 0, "loadBalancerClass": 0, "loadBalancerIP": 0, "loadBalancerSourceRanges": 0, "ports":
{"appProtocol": 0, "name": 0, "nodePort": 0, "port": 0, "protocol": 0, "targetPort": 0},
"publishNotReadyAddresses": 0, "selector": 0, "sessionAffinity": 0, "sessionAffinityConfig": {"clientIP":
{"timeoutSeconds": 0}}, "trafficDistribution": 0, "type": 0}, "part-2": {"allowPrivilegeEscalation": 0,
"appArmorProfile": {"localhostProfile": 0, "type": 0}, "capabilities": {"add": 0, "drop": 0}, "privileged":
0, "procMount": 0, "readOnlyRootFilesystem": 0, "runAsGroup": 0, "runAsNonRoot": 0, "runAsUser": 0,
"seLinuxOptions": {"level": 0, "role": 0, "type": 0, "user": 0}, "seccompProfile": {"localhostProfile": 0,
"type": 0}, "windowsOptions": {"gmsaCredentialSpec": 0, "gmsaCredentialSpecName": 0, "hostProcess": 0,
"runAsUserName": 0}}, "part-3": {"annotations": 0, "creationTimestamp": 0, "deletionGracePeriodSeconds": 0,
"deletionTimestamp": 0, "finalizers": 0, "generateName": 0, "generation": 0, "labels": 0, "managedFields":
{"apiVersion": 0, "fieldsType": 0, "fieldsV1": 0, "manager": 0, "operation": 0, "subresource": 0, "time":
0}, "name": 0, "namespace": 0, "ownerReferences": {"apiVersion": 0, "blockOwnerDeletion": 0, "controller":
0, "kind": 0, "name": 0, "uid": 0}, "resourceVersion": 0, "selfLink": 0, "uid": 0}, "part-4":
{"appArmorProfile": {"localhostProfile": 0, "type": 0}, "fsGroup": 0, "fsGroupChangePolicy": 0,
"runAsGroup": 0, "runAsNonRoot": 0, "runAsUser": 0, "seLinuxChangePolicy": 0, "seLinuxOptions": {"level": 0,
"role": 0, "type": 0, "user": 0}, "seccompProfile": {"localhostProfile": 0, "type": 0},
"supplementalGroups": 0, "supplementalGroupsPolicy": 0, "sysctls": {"name": 0, "value": 0},
"windowsOptions": {"gmsaCredentialSpec": 0, "gmsaCredentialSpecName": 0, "hostProcess": 0, "runAsUserName":
0}}, "part-5": {"args": 0, "command": 0, "env": {"name": 0, "value": 0, "valueFrom": {"configMapKeyRef":
{"key": 0, "name": 0, "optional": 0}, "fieldRef": {"apiVersion": 0, "fieldPath": 0}, "fileKeyRef": {"key":
0, "optional": 0, "path": 0, "volumeName": 0}, "resourceFieldRef": {"containerName": 0, "divisor": 0,
"resource": 0}, "secretKeyRef": {"key": 0, "name": 0, "optional": 0}}}, "envFrom": {"configMapRef": {"name":
0, "optional": 0}, "prefix": 0, "secretRef": {"name": 0, "optional": 0}}, "image": 0, "imagePullPolicy": 0,
"lifecycle": "part-13", "livenessProbe": {"exec": {"command": 0}, "failureThreshold": 0, "grpc": {"mode": 0,
"port": 0, "service": 0}, "httpGet": {"host": 0, "httpHeaders": {"name": 0, "value": 0}, "path": 0, "port":
0, "protocol": 0, "scheme": 0}, "initialDelaySeconds": 0, "periodSeconds": 0, "successThreshold": 0,
"tcpSocket": {"host": 0, "port": 0}, "terminationGracePeriodSeconds": 0, "timeoutSeconds": 0}, "name": 0,
"ports": {"containerPort": 0, "hostIP": 0, "hostPort": 0, "name": 0, "protocol": 0}, "readinessProbe":
{"exec": {"command": 0}, "failureThreshold": 0, "grpc": {"mode": 0, "port": 0, "service": 0}, "httpGet":
{"host": 0, "httpHeaders": {"name": 0, "value": 0}, "path": 0, "port": 0, "protocol": 0, "scheme": 0},
"initialDelaySeconds": 0, "periodSeconds": 0, "successThreshold": 0, "tcpSocket": {"host": 0, "port": 0},
"terminationGracePeriodSeconds": 0, "timeoutSeconds": 0}, "resizePolicy": {"resourceName": 0,
"restartPolicy": 0}, "resources": {"claims": {"name": 0, "request": 0}, "limits": 0, "requests": 0},
"restartPolicy": 0, "restartPolicyRules": {"action": 0, "exitCodes": {"operator": 0, "values": 0}},
"securityContext": "part-2", "startupProbe": {"exec": {"command": 0}, "failureThreshold": 0, "grpc":
{"mode": 0, "port": 0, "service": 0}, "httpGet": {"host": 0, "httpHeaders": {"name": 0, "value": 0}, "path":
0, "port": 0, "protocol": 0, "scheme": 0}, "initialDelaySeconds": 0, "periodSeconds": 0, "successThreshold":
0, "tcpSocket": {"host": 0, "port": 0}, "terminationGracePeriodSeconds": 0, "timeoutSeconds": 0}, "stdin":
0, "stdinOnce": 0, "terminationMessagePath": 0, "terminationMessagePolicy": 0, "tty": 0, "volumeDevices":
{"devicePath": 0, "name": 0}, "volumeMounts": {"bindMountOptions": 0, "mountPath": 0, "mountPropagation": 0,
"name": 0, "readOnly": 0, "recursiveReadOnly": 0, "subPath": 0, "subPathExpr": 0}, "workingDir": 0},
"part-6": {"clusterTrustBundle": {"labelSelector": {"matchExpressions": {"key": 0, "operator": 0, "values":
0}, "matchLabels": 0}, "name": 0, "optional": 0, "path": 0, "signerName": 0, "user": 0}, "configMap":
{"items": {"key": 0, "mode": 0, "path": 0, "user": 0}, "name": 0, "optional": 0}, "downwardAPI": {"items":
{"fieldRef": {"apiVersion": 0, "fieldPath": 0}, "mode": 0, "path": 0, "resourceFieldRef": {"containerName":
0, "divisor": 0, "resource": 0}, "user": 0}}, "podCertificate": {"certificateChainPath": 0,
"credentialBundlePath": 0, "keyPath": 0, "keyType": 0, "maxExpirationSeconds": 0, "signerName": 0, "user":
0, "userAnnotations": 0}, "secret": {"items": {"key": 0, "mode": 0, "path": 0, "user": 0}, "name": 0,
"optional": 0}, "serviceAccountToken": {"audience": 0, "expirationSeconds": 0, "path": 0, "user": 0}},
"part-7": {"configMap": {"defaultMode": 0, "defaultUser": 0, "items": {"key": 0, "mode": 0, "path": 0,
"user": 0}, "name": 0, "optional": 0}, "csi": {"driver": 0, "fsType": 0, "nodePublishSecretRef": {"name":
0}, "readOnly": 0, "volumeAttributes": 0}, "downwardAPI": {"defaultMode": 0, "defaultUser": 0, "items":
{"fieldRef": {"apiVersion": 0, "fieldPath": 0}, "mode": 0, "path": 0, "resourceFieldRef": {"containerName":
0, "divisor": 0, "resource": 0}, "user": 0}}, "emptyDir": {"medium": 0, "mode": 0, "sizeLimit": 0},
"ephemeral": "part-15", "fc": {"fsType": 0, "lun": 0, "readOnly": 0, "targetWWNs": 0, "wwids": 0},
"hostPath": {"path": 0, "type": 0}, "image": {"pullPolicy": 0, "reference": 0}, "iscsi":
{"chapAuthDiscovery": 0, "chapAuthSession": 0, "fsType": 0, "initiatorName": 0, "iqn": 0, "iscsiInterface":
0, "lun": 0, "portals": 0, "readOnly": 0, "secretRef": {"name": 0}, "targetPortal": 0}, "name": 0, "nfs":
{"path": 0, "readOnly": 0, "server": 0}, "persistentVolumeClaim": {"claimName": 0, "readOnly": 0},
"projected": "part-8", "secret": {"defaultMode": 0, "defaultUser": 0, "items": {"key": 0, "mode": 0, "path":
0, "user": 0}, "optional": 0, "secretName": 0}}, "part-8": {"defaultMode": 0, "defaultUser": 0, "sources":
"part-6"}, "part-9": {"metadata": "part-3", "spec": {"accessModes": 0, "dataSource": {"apiGroup": 0, "kind":
0, "name": 0}, "dataSourceRef": {"apiGroup": 0, "kind": 0, "name": 0, "namespace": 0}, "resources":
{"limits": 0, "requests": 0}, "selector": {"matchExpressions": {"key": 0, "operator": 0, "values": 0},
"matchLabels": 0}, "storageClassName": 0, "volumeAttributesClassName": 0, "volumeMode": 0, "volumeName":
0}}, "part-10": {"metadata": {"labels": 0, "annotations": 0}, "spec": "part-0"}, "part-11": {"metadata":
{"labels": 0, "annotations": 0}, "spec": "part-1", "port": 0, "nodePort": 0}, "part-12": {"nodeAffinity":
{"preferredDuringSchedulingIgnoredDuringExecution": {"preference": {"matchExpressions": {"key": 0,
"operator": 0, "values": 0}, "matchFields": {"key": 0, "operator": 0, "values": 0}}, "weight": 0},
"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": {"matchExpressions": {"key": 0,
"operator": 0, "values": 0}, "matchFields": {"key": 0, "operator": 0, "values": 0}}}}, "podAffinity":
"part-14", "podAntiAffinity": "part-14"}, "part-13": {"postStart": {"exec": {"command": 0}, "httpGet":
{"host": 0, "httpHeaders": {"name": 0, "value": 0}, "path": 0, "port": 0, "protocol": 0, "scheme": 0},
"sleep": {"seconds": 0}, "tcpSocket": {"host": 0, "port": 0}}, "preStop": {"exec": {"command": 0},
"httpGet": {"host": 0, "httpHeaders": {"name": 0, "value": 0}, "path": 0, "port": 0, "protocol": 0,
"scheme": 0}, "sleep": {"seconds": 0}, "tcpSocket": {"host": 0, "port": 0}}, "stopSignal": 0}, "part-14":
{"preferredDuringSchedulingIgnoredDuringExecution": {"podAffinityTerm": {"labelSelector":
{"matchExpressions": {"key": 0, "operator": 0, "values": 0}, "matchLabels": 0}, "matchLabelKeys": 0,
"mismatchLabelKeys": 0, "namespaceSelector": {"matchExpressions": {"key": 0, "operator": 0, "values": 0},
"matchLabels": 0}, "namespaces": 0, "topologyKey": 0}, "weight": 0},
"requiredDuringSchedulingIgnoredDuringExecution": {"labelSelector": {"matchExpressions": {"key": 0,
"operator": 0, "values": 0}, "matchLabels": 0}, "matchLabelKeys": 0, "mismatchLabelKeys": 0,
"namespaceSelector": {"matchExpressions": {"key": 0, "operator": 0, "values": 0}, "matchLabels": 0},
"namespaces": 0, "topologyKey": 0}}, "part-15": {"volumeClaimTemplate": "part-9"}}
""")
