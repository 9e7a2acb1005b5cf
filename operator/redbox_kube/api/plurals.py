"""Kinds as they are called in paths at the API server."""

from __future__ import annotations

PLURALS = {
    "SlurmJob": "slurmjobs",
    "WlmJob": "wlmjobs",
    "SlurmCluster": "slurmclusters",
    "SlurmEndpoint": "slurmendpoints",
    "Node": "nodes",
    "Pod": "pods",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Service": "services",
    "EndpointSlice": "endpointslices",
    "PersistentVolume": "persistentvolumes",
    "Event": "events",
    "Lease": "leases",
    "StorageClass": "storageclasses",
    "Deployment": "deployments",
    "CustomResourceDefinition": "customresourcedefinitions",
    "SubjectAccessReview": "subjectaccessreviews",
    "CertificateSigningRequest": "certificatesigningrequests",
}
