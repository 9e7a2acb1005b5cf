"""Kinds at the API server: how each is addressed, and the model of its objects where there is one."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind: group, version and plural are its path, the name is in its objects."""

    group: str
    version: str
    plural: str
    name: str
    is_namespaced: bool = True
    model: type[BaseModel] | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def scope(self) -> str:
        """As a CRD has it."""
        return "Namespaced" if self.is_namespaced else "Cluster"

    def __str__(self) -> str:
        return self.name


CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
EVENT = Kind("", "v1", "events", "Event")
NAMESPACE = Kind("", "v1", "namespaces", "Namespace", is_namespaced=False)
NODE = Kind("", "v1", "nodes", "Node", is_namespaced=False)
PERSISTENT_VOLUME = Kind("", "v1", "persistentvolumes", "PersistentVolume", is_namespaced=False)
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
POD = Kind("", "v1", "pods", "Pod")
SECRET = Kind("", "v1", "secrets", "Secret")
SERVICE = Kind("", "v1", "services", "Service")
SERVICE_ACCOUNT = Kind("", "v1", "serviceaccounts", "ServiceAccount")
CONTROLLER_REVISION = Kind("apps", "v1", "controllerrevisions", "ControllerRevision")
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment")
STATEFUL_SET = Kind("apps", "v1", "statefulsets", "StatefulSet")
JOB = Kind("batch", "v1", "jobs", "Job")
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", is_namespaced=False)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", is_namespaced=False
)
SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", is_namespaced=False
)
CERTIFICATE_SIGNING_REQUEST = Kind(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    is_namespaced=False,
)
