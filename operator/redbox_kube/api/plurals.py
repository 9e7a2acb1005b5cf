"""Kinds as they are called in paths at the API server."""

from __future__ import annotations

from typing import NamedTuple

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
    "PersistentVolume": "persistentvolumes",
    "Event": "events",
    "Lease": "leases",
    "StorageClass": "storageclasses",
    "Deployment": "deployments",
    "CustomResourceDefinition": "customresourcedefinitions",
    "SubjectAccessReview": "subjectaccessreviews",
    "CertificateSigningRequest": "certificatesigningrequests",
}


class Resource(NamedTuple):
    """A kind at the API server."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"
