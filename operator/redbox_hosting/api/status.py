"""Statuses of all kinds, and the types of their conditions."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from redbox_kube.controller.kube_object import ConditionedStatus


class ControllerStatus(ConditionedStatus):
    """The status of a Controller."""

    version: str | None = Field(None, max_length=32, description="Slurm's release, as its slurmrestd says.")
    config_hash: str | None = Field(
        None, max_length=64, description="The configuration that slurmctld was seen to run."
    )
    nodes: int | None = Field(None, description="How many nodes Slurm has.")
    image: str | None = Field(
        None,
        max_length=1024,
        description="The image that slurmctld was seen to run. Workers and slurmrestd follow it, and a "
        "Controller that names no image keeps it. Where slurmctld runs elsewhere it is slurmrestd's.",
    )
    rotated_keys: str | None = Field(
        None,
        max_length=256,
        description="The value of the annotation rotate-keys for which the keys were rotated last. Not there "
        "while they are rotated.",
    )
    oldest_slurmd: str | None = Field(
        None,
        max_length=32,
        description="The oldest release of a slurmd: slurm.conf has the keys of that one.",
    )


class NodeSetStatus(ConditionedStatus):
    """The status of a NodeSet."""

    desired: int | None = Field(None, description="How many workers are wanted.")
    replicas: int = Field(0, description="Workers that neither end nor are to go.")
    updated_replicas: int = Field(0, description="Workers of the newest revision.")
    ready_replicas: int = Field(0, description="Workers that are ready.")
    available_replicas: int = Field(0, description="Workers that were ready for minReadySeconds.")
    unavailable_replicas: int = Field(0, description="Wanted workers that are not available.")
    slurm_idle: int = Field(0, description="Nodes that are IDLE in Slurm.")
    slurm_allocated: int = Field(0, description="Nodes that are ALLOCATED or MIXED.")
    slurm_down: int = Field(0, description="Nodes that are DOWN.")
    slurm_drain: int = Field(0, description="Nodes that are drained or draining.")
    node_set_hash: str | None = Field(None, max_length=64, description="The newest revision.")
    collision_count: int | None = Field(None, description="For names of revisions.")
    selector: str | None = Field(None, max_length=1024, description="Selects its pods, for autoscalers.")


class LoginSetStatus(ConditionedStatus):
    """The status of a LoginSet."""

    replicas: int = Field(0, description="How many pods there are.")
    selector: str | None = Field(None, max_length=1024, description="Selects its pods, for autoscalers.")


class RestApiStatus(ConditionedStatus):
    """The status of a RestApi."""


class AccountingStatus(ConditionedStatus):
    """The status of an Accounting."""

    version: str | None = Field(None, max_length=32, description="The release of the running slurmdbd.")
    database_image: str | None = Field(
        None,
        max_length=1024,
        description="The image that MariaDB was seen to run. An Accounting that names none keeps it.",
    )


class TokenStatus(ConditionedStatus):
    """The status of a Token."""

    issued_at: datetime | None = Field(None, description="When the token was signed.")
    expires_at: datetime | None = Field(None, description="When it ends.")
