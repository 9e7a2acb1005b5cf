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

    include: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256)]],
        Field(max_length=256, description="Only these; names may contain * and ?. Empty: all."),
    ] = []
    exclude: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256)]],
        Field(
            max_length=256,
            description="Not these, even if `include` has them; names may contain * and ?.",
        ),
    ] = []


class SlurmClusterSpec(SlurmClusterKind):
    """A Slurm cluster behind a red-box."""

    endpoint: Annotated[
        str, Field(pattern=r"^https://[^/]+$", max_length=512, description="The URL of its red-box.")
    ]
    ca_bundle: Annotated[
        bytes,
        Field(max_length=65536, description="The CA of its certificate: PEM, in base64."),
    ]
    audience: Annotated[
        str,
        Field(
            pattern=r"^redbox\.dev/.+$",
            max_length=256,
            description="The audience of tokens for this red-box only, as printed by `redbox init`.",
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
        PartitionFilter, Field(description="The partitions to publish as nodes and labels.")
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
        OrphanPolicy, Field(description="What happens to Slurm jobs whose SlurmJob is gone.")
    ] = OrphanPolicy.REPORT
    abandon_jobs: Annotated[
        bool,
        Field(
            description="SlurmJobs of this cluster are deleted without cancelling their jobs: for a Slurm "
            "cluster that never comes back."
        ),
    ] = False

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
