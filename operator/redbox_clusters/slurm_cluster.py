"""SlurmCluster as cluster administrators write it, read by the operator and by resourced."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from redbox_clusters.names import GROUP, VERSION
from redbox_kube.api.kinds import Kind
from redbox_kube.status.models import KubeModel, StoredObject

PODS_READY = "PodsReady"
"""The condition of a SlurmCluster with pods.enabled: whether pods on its virtual nodes run. By resourced."""
NOT_REPORTED = "NotReported"
"""Its reason where resourced has not written it; then the operator has."""
PODS_DISABLED = "Disabled"
"""Its reason where resourced has seen pods.enabled turned off."""


class Delivery(StrEnum):
    """What represents a job in Kubernetes: a container that relays it, or a pod on a virtual node."""

    CONTAINER = "Container"
    VIRTUAL = "Virtual"


class OrphanPolicy(StrEnum):
    """What happens to jobs in Slurm whose SlurmJob is gone."""

    REPORT = "Report"
    CANCEL = "Cancel"


class PartitionFilter(KubeModel):
    """The partitions to publish; names may contain * and ?."""

    include: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        [], max_length=256, description="Only these; names may contain * and ?. Empty: all."
    )
    exclude: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        [], max_length=256, description="Not these, even if `include` has them; names may contain * and ?."
    )


class SharedMount(KubeModel):
    """A file system that both clusters mount: volumes of Kubernetes below it are paths in Slurm."""

    server: str = Field(
        "", max_length=253, pattern=r"^[A-Za-z0-9.:-]*$", description="NFS: the volume's server."
    )
    path: str = Field(
        "",
        max_length=4096,
        pattern=r"^(/[^\x00\n\r]*)?$",
        description="NFS: the path that the server exports; volumes at or below it are found below `to`.",
    )
    driver: str = Field(
        "", max_length=63, pattern=r"^[a-z0-9.-]*$", description="CSI: the name of the volume's driver."
    )
    volume_handle: str = Field(
        "",
        max_length=1024,
        pattern=r"^[^\x00\n\r]*$",
        description="CSI: with what the volume's handle begins; the rest of the handle is a path below `to`.",
    )
    to: str = Field(
        max_length=4096,
        pattern=r"^/[^\x00\n\r]*$",
        description="Where Slurm's nodes have it: an absolute path.",
    )


class PodUsers(StrEnum):
    """What becomes of the users and groups that pods ask for."""

    REFUSE = "refuse"
    MAP = "map"


class PodsSpec(KubeModel):
    """How pods that are bound to virtual nodes run as Slurm jobs."""

    enabled: bool = Field(
        default=False,
        description="Pods that name a virtual node's taint or label run as Slurm jobs of the Unix user of "
        "their service account. The partitions are published as virtual nodes, whatever `delivery` is.",
    )
    scratch: str = Field(
        "/tmp",  # noqa: S108 (each job has a folder of its own there)
        max_length=4096,
        pattern=r"^/[^\x00\n\r]*$",
        description="A folder on the local disk of each Slurm node: for emptyDir volumes and the containers' "
        "writable roots. All of a job's is removed when the job ends.",
    )
    routed: bool = Field(
        default=False,
        description="Pods and Services of Kubernetes reach the addresses of the Slurm nodes: the pod's "
        "address is then the node's. Without it a pod has no address.",
    )
    mounts: list[SharedMount] = Field(
        [],
        max_length=64,
        description="NFS and CSI volumes that the Slurm nodes mount too, and where. The first that fits "
        "counts. A claim whose volume fits none is refused by its name.",
    )
    users: PodUsers = Field(
        PodUsers.REFUSE,
        description="Pods that ask for a user or a group of their own (runAsUser, runAsGroup, fsGroup). "
        "refuse: they fail. map: their containers see themselves as those, in a user namespace; on the "
        "node they stay the Unix user of the service account. SELinux options then have no effect.",
    )
    api_server: str | None = Field(
        None,
        pattern=r"^https://[^/\s]+$",
        max_length=512,
        description="The URL at which Slurm nodes reach the API server; containers find it in "
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, where apiTokens allows them a token.",
    )
    api_tokens: bool = Field(
        default=False,
        description="Pods get the API tokens that they ask for, in the namespaces that the chart lists in "
        "resourced.pods.apiTokenNamespaces. The token lies where each job of that Unix user can read it.",
    )


class CaBundleSource(KubeModel):
    """A ConfigMap with the CA of a red-box."""

    namespace: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9-]+$", description="Its namespace.")
    name: str = Field(min_length=1, max_length=253, pattern=r"^[a-z0-9.-]+$", description="Its name.")
    key: str = Field(
        "ca.crt",
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Its key with the certificates: PEM.",
    )


class SlurmClusterSpec(KubeModel):
    """A Slurm cluster behind a red-box."""

    endpoint: str = Field(pattern=r"^https://[^/]+$", max_length=512, description="The URL of its red-box.")
    ca_bundle: bytes = Field(
        default_factory=bytes,  # a default in the schema would have to be base64 of something
        max_length=65536,
        description="The CA of its certificate: PEM, in base64. Left out: public authorities.",
    )
    ca_bundle_from: CaBundleSource | None = Field(
        None,
        description="The operator copies the CA from this ConfigMap to `caBundle`, and connects only then. "
        "It needs the right to get the ConfigMap.",
    )
    audience: str = Field(
        pattern=r"^redbox\.dev/.+$",
        max_length=256,
        description="The audience of tokens for this red-box only, as printed by `redbox init`.",
    )
    delivery: Delivery = Field(
        Delivery.CONTAINER,
        description="Container: a small pod relays each job. Virtual: the pod is bound to the "
        "partition's virtual node and no container runs. Of SlurmJobs only: see `pods` for other pods.",
    )
    partitions: PartitionFilter = Field(
        PartitionFilter(), description="The partitions to publish as nodes and labels."
    )
    gateways: bool = Field(
        default=False,
        description="Companions run only on nodes labelled as gateways of this cluster, "
        "redbox.dev/gateway.<name>=true, where a job must fit the partition's published limits.",
    )
    hold_back: bool = Field(
        default=False,
        description="Companions also request the partition's extended resources, so that Kubernetes "
        "holds jobs back until they are free. Only with Virtual delivery or exactly one gateway node.",
    )
    orphan_policy: OrphanPolicy = Field(
        OrphanPolicy.REPORT, description="What happens to Slurm jobs whose SlurmJob or pod is gone."
    )
    pods: PodsSpec = Field(
        PodsSpec(),
        description="Pods on virtual nodes as Slurm jobs. Needs the chart's resourced.pods.enabled.",
    )
    abandon_jobs: bool = Field(
        default=False,
        description="SlurmJobs of this cluster, and pods on its virtual nodes, are deleted without "
        "cancelling their jobs: for a Slurm cluster that never comes back.",
    )

    @property
    def waits_for_ca(self) -> bool:
        """Whether the operator has not copied it yet. Without it public authorities would be trusted."""
        return self.ca_bundle_from is not None and not self.ca_bundle

    @property
    def has_virtual_nodes(self) -> bool:
        """Whether its partitions are virtual nodes: for its SlurmJobs, for pods, or for both."""
        return self.delivery is Delivery.VIRTUAL or self.pods.enabled

    @field_validator("ca_bundle", mode="before")
    @classmethod
    def _decoded(cls, given: object) -> object:
        return base64.b64decode(given) if isinstance(given, str) else given


class SlurmCluster(StoredObject):
    """A SlurmCluster as stored at the API server; it has no namespace, and is for the SlurmJobs of all."""

    kind: ClassVar[str] = "SlurmCluster"

    spec: SlurmClusterSpec
    status: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """Its name among all SlurmClusters and SlurmEndpoints."""
        return self.name

    @property
    def title(self) -> str:
        """As messages name it."""
        return f"{self.kind} {self.key}"


SLURM_CLUSTERS = Kind(
    GROUP, VERSION, "slurmclusters", "SlurmCluster", is_namespaced=False, model=SlurmCluster
)
