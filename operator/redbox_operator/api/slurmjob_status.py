"""The status of a SlurmJob: the model that the CRD's schema is made from, and that is written whole.

What is not known is left out. The operator keeps nothing about a job anywhere else: after a restart, this and
red-box's rows are all that it needs.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from redbox_kube.slurm_cluster import SlurmClusterKind


class JobPhase(StrEnum):
    """Where a SlurmJob is, in one word."""

    PENDING = "Pending"  # not in Slurm yet, or between two attempts
    SUBMITTED = "Submitted"  # in Slurm's queue
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class ConditionStatus(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionType(StrEnum):
    """What is said of a SlurmJob; docs say `kubectl wait --for=condition=Finished`."""

    SUBMITTED = "Submitted"  # Slurm has the job
    RUNNING = "Running"
    HELD = "Held"  # Slurm was asked to hold it
    SYNCED = "Synced"  # what is written here is what red-box says, and the log can be read
    FINISHED = "Finished"  # any end, after the last attempt
    COMPLETE = "Complete"  # success
    FAILED = "Failed"  # failed, cancelled or lost
    RESULTS_COLLECTED = "ResultsCollected"  # where results are wanted; says which of them did not come


class StatusCondition(SlurmClusterKind):
    """One thing that holds, or does not, since when, and why."""

    type: Annotated[str, Field(max_length=64)]
    status: ConditionStatus
    reason: Annotated[str, Field(max_length=128, description="One word for programs.")]
    message: Annotated[str, Field(max_length=4096, description="What happened, and what to do.")] = ""
    last_transition_time: Annotated[datetime, Field(description="When `status` last changed.")]
    observed_generation: int | None = None


class CompanionStatus(SlurmClusterKind):
    """The pod that stands for the job. Only the pod of this uid is believed."""

    name: str
    uid: Annotated[str | None, Field(description="Of the pod; a pod of that name only is none of ours.")] = (
        None
    )
    attempt: Annotated[int, Field(description="The attempt that it stands for.")]
    request: Annotated[
        str | None, Field(description="The digest of what it asks of red-box, frozen in its ConfigMap.")
    ] = None
    done: Annotated[
        bool | None, Field(description="It has said its last word and will not be made again.")
    ] = None
    replaced: Annotated[
        int | None, Field(description="How often it had to be made again lately, without saying a last word.")
    ] = None
    replaced_at: datetime | None = None


class ArrayStatus(SlurmClusterKind):
    """How many tasks of an array are where."""

    total: int
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class ResultsStatus(SlurmClusterKind):
    """What became of the files that were to be copied into the volume."""

    outcome: Annotated[str, Field(description="Collected, Skipped or Failed.")]
    files: int | None = None
    bytes: int | None = None
    message: str | None = None


class SlurmJobStatus(SlurmClusterKind):
    """All that is known of a SlurmJob."""

    phase: Annotated[
        JobPhase, Field(description="Pending, Submitted, Running, Suspended, Succeeded, Failed or Cancelled.")
    ] = JobPhase.PENDING
    status: Annotated[
        JobPhase, Field(description="The same as `phase`, for tools written for older operators.")
    ] = JobPhase.PENDING
    state: Annotated[str | None, Field(description="Slurm's own word for the job's state.")] = None
    reason: Annotated[
        str | None,
        Field(description="Slurm's own word for why it waits or ended, or ours where it has none."),
    ] = None
    message: Annotated[
        str | None, Field(description="One sentence for a person: what happened, and what to do.")
    ] = None
    job_id: Annotated[str | None, Field(alias="jobID", description="Slurm's id of the newest attempt.")] = (
        None
    )
    cluster: Annotated[str | None, Field(description="The SlurmCluster that it went to.")] = None
    partition: Annotated[str | None, Field(description="As Slurm says.")] = None
    user: Annotated[str | None, Field(description="The Unix account that it runs as.")] = None
    nodes: Annotated[list[str], Field(description="The nodes of Slurm that it runs or ran on.")] = []
    node_list: Annotated[str | None, Field(description="The same as Slurm writes it: n[1-3].")] = None
    exit_code: int | None = None
    signal: Annotated[int | None, Field(description="The signal that ended it.")] = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stale_since: Annotated[
        datetime | None, Field(description="Since when Slurm has not been able to say how the job is.")
    ] = None
    run: Annotated[int | None, Field(description="How often Slurm has started this attempt.")] = None
    attempts: Annotated[
        int | None, Field(description="How many jobs it has been in Slurm, this one too.")
    ] = None
    resumed: Annotated[
        int | None, Field(description="How many of them followed on a suspension, not on a failure.")
    ] = None
    dependencies_met: Annotated[
        bool | None,
        Field(description="What dependsOn names has come about; further attempts do not wait for it."),
    ] = None
    array: ArrayStatus | None = None
    results: ResultsStatus | None = None
    working_directory: str | None = None
    companion: CompanionStatus | None = None
    conditions: Annotated[
        list[StatusCondition],
        Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    ] = []
    observed_generation: int | None = None

    def condition(self, kind: ConditionType) -> StatusCondition | None:
        """What is said of this, if anything."""
        return next((one for one in self.conditions if one.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether it is said to be so."""
        condition = self.condition(kind)
        return condition is not None and condition.status is ConditionStatus.TRUE

    @property
    def finished(self) -> bool:
        """Whether it has come to its end, after the last attempt."""
        return self.holds(ConditionType.FINISHED)

    def written(self) -> dict[str, Any]:
        """As the API server is told."""
        written = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {name: value for name, value in written.items() if value != []}
