"""SlurmCluster as cluster administrators write it, for the operator and for resourced."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel


class SlurmClusterKind(BaseModel):
    """Base of what the API server has checked by the CRD's schema; fields of later versions are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Delivery(StrEnum):
    """What stands in Kubernetes for a job: a container that relays it, or a pod on a virtual node."""

    CONTAINER = "Container"
    VIRTUAL = "Virtual"


class OrphanPolicy(StrEnum):
    """What becomes of jobs in Slurm whose SlurmJob is gone."""

    REPORT = "Report"
    CANCEL = "Cancel"


class PartitionFilter(SlurmClusterKind):
    """Which partitions are published; names may hold * and ?."""

    include: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256)]],
        Field(max_length=256, description="Only these; names may hold * and ?. Empty: all."),
    ] = []
    exclude: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256)]],
        Field(
            max_length=256,
            description="None of these, even where `include` has them; names may hold * and ?.",
        ),
    ] = []


class SlurmClusterSpec(SlurmClusterKind):
    """A Slurm cluster behind a red-box."""

    endpoint: Annotated[
        str, Field(pattern=r"^https://[^/]+$", max_length=512, description="Where its red-box is.")
    ]
    ca_bundle: Annotated[
        bytes,
        Field(
            max_length=65536, description="The CA of its certificate: PEM, in base64 as caBundle always is."
        ),
    ]
    audience: Annotated[
        str,
        Field(
            pattern=r"^redbox\.dev/.+$",
            max_length=256,
            description="The audience of tokens for this red-box alone, as `redbox init` printed it.",
        ),
    ]
    delivery: Annotated[
        Delivery,
        Field(
            description="Container: a small pod relays each job. Virtual: the pod is bound to the "
            "partition's virtual node and no container runs."
        ),
    ] = Delivery.CONTAINER
    partitions: Annotated[
        PartitionFilter, Field(description="Which of its partitions become nodes and labels.")
    ] = PartitionFilter()
    gateways: Annotated[
        bool,
        Field(
            description="Companions run only on nodes labelled as gateways of this cluster, "
            "redbox.dev/gateway.<name>=true, where a job must fit the partition's published limits."
        ),
    ] = False
    hold_back: Annotated[
        bool,
        Field(
            description="Companions also request the partition's extended resources, so that Kubernetes "
            "holds jobs back until they are free. Only with Virtual delivery or exactly one gateway node."
        ),
    ] = False
    orphan_policy: Annotated[
        OrphanPolicy, Field(description="What becomes of Slurm jobs whose SlurmJob is gone.")
    ] = OrphanPolicy.REPORT
    abandon_jobs: Annotated[
        bool,
        Field(
            description="SlurmJobs of this cluster may be deleted without their jobs being cancelled: for a "
            "Slurm that never comes back."
        ),
    ] = False

    @field_validator("ca_bundle", mode="before")
    @classmethod
    def _decoded(cls, given: object) -> object:
        return base64.b64decode(given) if isinstance(given, str) else given


class SlurmCluster(SlurmClusterKind):
    """A SlurmCluster as the API server holds it."""

    metadata: dict[str, Any]
    spec: SlurmClusterSpec
    status: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return str(self.metadata["name"])
