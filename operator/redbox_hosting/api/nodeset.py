"""NodeSet: workers of one kind, each a pod with its slurmd."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, WithJsonSchema

from redbox_hosting.api.fields import IntOrPercent, ObjectRef, SecretKeyRef, Sharing
from redbox_hosting.api.pod_schemas import ClaimTemplate, ContainerFields, PodTemplate
from redbox_hosting.api.status import NodeSetStatus
from redbox_kube.controller.kube_object import KubeObject
from redbox_kube.status.models import KubeModel

MOST_REPLICAS = 10_000
MOST_SECONDS = 365 * 86_400
QuantityField = Annotated[
    int | str,
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "pattern": r"^[0-9]{1,12}(\.[0-9]{1,6})?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
        }
    ),
]


class ScalingMode(StrEnum):
    """How many workers there are: a number, or one on each Kubernetes node."""

    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"


class UpdateType(StrEnum):
    """When workers get a changed template."""

    ROLLING_UPDATE = "RollingUpdate"
    ON_DELETE = "OnDelete"
    SCHEDULED_UPDATE = "ScheduledUpdate"


class ClaimRetention(StrEnum):
    """What happens to a worker's claims."""

    RETAIN = "Retain"
    DELETE = "Delete"


class RecordPruning(StrEnum):
    """Whether records of nodes that are gone are deleted in Slurm."""

    NEVER = "Never"
    NODE_NOT_FOUND = "NodeNotFound"


class SshFields(KubeModel):
    """sshd in each worker. Not built: `enabled: true` is refused in a condition."""

    enabled: bool = Field(description="Run sshd. Not built.")
    extra_sshd_config: str | None = Field(None, max_length=65_536, description="Lines for sshd_config.")
    sssd_conf_ref: SecretKeyRef | None = Field(None, description="sssd.conf.")


class NodeSetPartition(KubeModel):
    """A partition of the NodeSet's name and nodes."""

    enabled: bool = Field(default=False, description="Make the partition.")
    config: str | None = Field(
        None,
        max_length=4096,
        pattern=r"^[^\x00-\x1f]*$",
        description="Options of its PartitionName line, such as `MaxTime=1-0 Default=YES`.",
    )


class RollingUpdateFields(KubeModel):
    """How fast workers are replaced."""

    max_unavailable: IntOrPercent | None = Field(
        None,
        description="The most workers, or their share, that are missing during an update. The default is "
        "25%.",
    )


class ScheduledUpdateFields(KubeModel):
    """An update by a reservation. Not built."""

    start_time: str | None = Field(None, max_length=64, description="When it begins. Not built.")
    duration: str | None = Field(None, max_length=32, description="How long it may take. Not built.")
    flags: list[Annotated[str, Field(max_length=64)]] = Field(
        [], max_length=32, description="Flags of the reservation. Not built."
    )


class UpdateStrategy(KubeModel):
    """When workers get a changed template, and how fast."""

    type: UpdateType = Field(
        UpdateType.ROLLING_UPDATE,
        description="RollingUpdate: idle and drained workers are replaced. OnDelete: only a deleted worker "
        "is. ScheduledUpdate is not built.",
    )
    rolling_update: RollingUpdateFields | None = Field(None, description="For RollingUpdate.")
    scheduled_update: ScheduledUpdateFields | None = Field(None, description="Not built.")


class ClaimRetentionPolicy(KubeModel):
    """What happens to the claims of workers."""

    when_deleted: ClaimRetention = Field(
        ClaimRetention.RETAIN,
        description="Retain or Delete, when the NodeSet is deleted. Delete is not built.",
    )
    when_scaled: ClaimRetention = Field(
        ClaimRetention.RETAIN, description="Retain or Delete, when a worker is removed. Delete is not built."
    )


class OnDemand(KubeModel):
    """Workers that exist while Slurm wants them. Not built."""

    min: int = Field(0, ge=0, le=MOST_REPLICAS, description="The fewest workers. Not built.")
    max: int = Field(ge=1, le=MOST_REPLICAS, description="The most workers. Not built.")
    idle_seconds: int | None = Field(
        None, ge=1, le=MOST_SECONDS, description="How long a worker is idle before it ends. Not built."
    )
    start_seconds: int | None = Field(
        None, ge=1, le=MOST_SECONDS, description="How long a worker may take to start. Not built."
    )


class RedboxNodeSetFields(KubeModel):
    """Fields that other operators of Slurm do not have."""

    sharing: Sharing = Field(
        Sharing.EXCLUSIVE,
        description="Exclusive: one job has a worker to itself. Shared: jobs share its CPUs and memory, and "
        "nothing but Slurm's own accounting keeps them apart in the Plain profile.",
    )
    on_demand: OnDemand | None = Field(None, description="Not built.")
    drain_timeout: int | None = Field(
        None,
        ge=0,
        le=MOST_SECONDS,
        description="The most seconds that a worker which is to go waits for its jobs; then they are "
        "requeued. Left out: as long as the longest MaxTime allows.",
    )
    shm_size: QuantityField | None = Field(
        None,
        description="The size of /dev/shm. It is part of the memory limit. The default is a quarter of it.",
    )


class NodeSetSpec(KubeModel):
    """Workers of one kind."""

    controller_ref: ObjectRef = Field(description="The Controller of this namespace.")
    replicas: int | None = Field(
        None,
        ge=0,
        le=MOST_REPLICAS,
        description="How many workers. Left out: as many as there are, which is none at first. Ignored with "
        "scalingMode DaemonSet.",
    )
    scaling_mode: ScalingMode = Field(
        ScalingMode.STATEFUL_SET,
        description="StatefulSet: as many workers as `replicas` says. DaemonSet: one on each Kubernetes "
        "node that the template selects.",
    )
    slurmd: ContainerFields = Field(
        {}, description="The container slurmd, as in a pod. Its limits are the node's CPUs, memory and GPUs."
    )
    logfile: ContainerFields = Field(
        {}, description="A container, as in a pod. Refused in a condition: daemons log to stderr."
    )
    ssh: SshFields | None = Field(None, description="Not built.")
    template: PodTemplate = Field(
        {}, description="The pod of a worker, as in a pod. spec.hostname is the prefix of its node's name."
    )
    extra_conf: str | None = Field(
        None,
        max_length=4096,
        pattern=r"^[^\x00-\x08\x0b-\x1f]*$",
        description="Options of each node, such as `Weight=2 Feature=fast`.",
    )
    partition: NodeSetPartition | None = Field(
        None, description="A partition of this NodeSet's name and nodes."
    )
    volume_claim_templates: list[ClaimTemplate] = Field(
        [], max_length=16, description="Claims that each worker has of its own, as in a pod."
    )
    update_strategy: UpdateStrategy = Field(
        UpdateStrategy(), description="When workers get a changed template."
    )
    revision_history_limit: int = Field(0, ge=0, le=100, description="How many old revisions are kept.")
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = Field(
        ClaimRetentionPolicy(), description="What happens to claims of volumeClaimTemplates."
    )
    min_ready_seconds: int = Field(
        0, ge=0, le=86_400, description="How long a worker is ready before it counts as available."
    )
    ordinal_padding: int = Field(0, ge=0, le=9, description="Digits of a worker's number: 3 makes w-007.")
    pin_to_node: bool = Field(
        default=False,
        description="A worker's next pod runs on the Kubernetes node of its first one. Not built.",
    )
    workload_disruption_protection: bool = Field(
        default=True,
        description="Evictions wait for the end of a worker's jobs. Deletions by the operator wait anyway.",
    )
    prune_slurm_node_records: RecordPruning = Field(
        RecordPruning.NEVER,
        description="Never, or NodeNotFound: with scalingMode DaemonSet, delete the record in Slurm of a "
        "Kubernetes node that is gone.",
    )
    oversubscribe_node: bool = Field(
        default=False, description="Several workers may run on one Kubernetes node."
    )
    redbox: RedboxNodeSetFields = Field(
        RedboxNodeSetFields(), description="Fields that other operators of Slurm do not have."
    )


class NodeSet(KubeObject):
    """A NodeSet as stored at the API server."""

    spec: NodeSetSpec
    status: NodeSetStatus = NodeSetStatus()

    @property
    def node_prefix(self) -> str:
        """Begins the names of its nodes: spec.hostname of the template, or the NodeSet's name."""
        return str(self.spec.template.get("spec", {}).get("hostname") or self.name)
