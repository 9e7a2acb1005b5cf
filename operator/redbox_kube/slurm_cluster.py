"""SlurmCluster as cluster administrators write it, read by the operator and by resourced."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel


class SlurmClusterKind(BaseModel):
    """Base of models that the CRD's schema has validated; fields of later versions are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Delivery(StrEnum):
    """What represents a job in Kubernetes: a container that relays it, or a pod on a virtual node."""

    CONTAINER = "Container"
    VIRTUAL = "Virtual"


class OrphanPolicy(StrEnum):
    """What happens to jobs in Slurm whose SlurmJob is gone."""

    REPORT = "Report"
    CANCEL = "Cancel"


class PartitionFilter(SlurmClusterKind):
    """The partitions to publish; names may contain * and ?."""

    include: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        [], max_length=256, description="Only these; names may contain * and ?. Empty: all."
    )
    exclude: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        [], max_length=256, description="Not these, even if `include` has them; names may contain * and ?."
    )


class SlurmClusterSpec(SlurmClusterKind):
    """A Slurm cluster behind a red-box."""

    endpoint: str = Field(pattern=r"^https://[^/]+$", max_length=512, description="The URL of its red-box.")
    ca_bundle: bytes = Field(max_length=65536, description="The CA of its certificate: PEM, in base64.")
    audience: str = Field(
        pattern=r"^redbox\.dev/.+$",
        max_length=256,
        description="The audience of tokens for this red-box only, as printed by `redbox init`.",
    )
    delivery: Delivery = Field(
        Delivery.CONTAINER,
        description="Container: a small pod relays each job. Virtual: the pod is bound to the "
        "partition's virtual node and no container runs.",
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
        OrphanPolicy.REPORT, description="What happens to Slurm jobs whose SlurmJob is gone."
    )
    abandon_jobs: bool = Field(
        default=False,
        description="SlurmJobs of this cluster are deleted without cancelling their jobs: for a Slurm "
        "cluster that never comes back.",
    )

    @field_validator("ca_bundle", mode="before")
    @classmethod
    def _decoded(cls, given: object) -> object:
        return base64.b64decode(given) if isinstance(given, str) else given


class SlurmCluster(SlurmClusterKind):
    """A SlurmCluster as stored at the API server."""

    metadata: dict[str, Any]
    spec: SlurmClusterSpec
    status: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return str(self.metadata["name"])
