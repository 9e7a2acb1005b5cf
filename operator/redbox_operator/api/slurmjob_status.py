"""The status of a SlurmJob: the model that the CRD's schema is generated from, always written as a whole.

Unknown fields are left out. The operator stores nothing else about a job: after a restart it continues from
the status and red-box's rows.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from redbox_kube.slurm_cluster import SlurmClusterKind


class JobPhase(StrEnum):
    """The phase of a SlurmJob."""

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
    """Condition types of a SlurmJob, as in `kubectl wait --for=condition=Finished`."""

    SUBMITTED = "Submitted"  # Slurm has the job
    RUNNING = "Running"
    HELD = "Held"  # Slurm was asked to hold it
    SYNCED = "Synced"  # the status is red-box's newest, and the log can be read
    FINISHED = "Finished"  # any end, after the last attempt
    COMPLETE = "Complete"  # success
    FAILED = "Failed"  # failed, cancelled or lost
    RESULTS_COLLECTED = "ResultsCollected"  # where results are requested; names those that were not copied


class StatusCondition(SlurmClusterKind):
    """Whether something holds, since when, and why."""

    type: Annotated[str, Field(max_length=64)]
    status: ConditionStatus
    reason: Annotated[str, Field(max_length=128, description="One word for programs.")]
    message: Annotated[str, Field(max_length=4096, description="What happened, and what to do.")] = ""
    last_transition_time: Annotated[datetime, Field(description="When `status` last changed.")]
    observed_generation: int | None = None


class CompanionStatus(SlurmClusterKind):
    """The pod that represents the job. Only the pod of this uid is trusted."""

    name: str
    uid: Annotated[
        str | None, Field(description="The pod's uid; another pod of that name is not trusted.")
    ] = None
    attempt: Annotated[int, Field(description="The attempt that it represents.")]
    request: Annotated[
        str | None, Field(description="The digest of its request to red-box, which its ConfigMap stores.")
    ] = None
    done: Annotated[bool | None, Field(description="It has finished its work and is not created again.")] = (
        None
    )
    replaced: Annotated[
        int | None,
        Field(
            description="How often it was created again recently, because it ended before it had finished."
        ),
    ] = None
    replaced_at: datetime | None = None


class ArrayStatus(SlurmClusterKind):
    """Number of tasks of an array by phase."""

    total: int
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class ResultsStatus(SlurmClusterKind):
    """The outcome of copying results into the volume."""

    outcome: Annotated[str, Field(description="Collected, Skipped or Failed.")]
    files: int | None = None
    bytes: int | None = None
    message: str | None = None


class SlurmJobStatus(SlurmClusterKind):
    """The status of a SlurmJob, as the operator writes it."""

    phase: Annotated[
        JobPhase, Field(description="Pending, Submitted, Running, Suspended, Succeeded, Failed or Cancelled.")
    ] = JobPhase.PENDING
    status: Annotated[
        JobPhase, Field(description="The same as `phase`, for tools written for older operators.")
    ] = JobPhase.PENDING
    state: Annotated[str | None, Field(description="The job's state in Slurm's terms.")] = None
    reason: Annotated[
        str | None,
        Field(description="Slurm's reason why it waits or ended, or Red Box's own reason."),
    ] = None
    message: Annotated[
        str | None, Field(description="One sentence for a person: what happened, and what to do.")
    ] = None
    job_id: Annotated[
        str | None, Field(alias="jobID", description="The Slurm job id of the newest attempt.")
    ] = None
    cluster: Annotated[str | None, Field(description="The SlurmCluster that it was submitted to.")] = None
    partition: Annotated[str | None, Field(description="The job's partition in Slurm.")] = None
    user: Annotated[str | None, Field(description="The Unix account that it runs as.")] = None
    nodes: Annotated[list[str], Field(description="The Slurm nodes that it runs or ran on.")] = []
    node_list: Annotated[str | None, Field(description="The nodes as a host list: n[1-3].")] = None
    exit_code: int | None = None
    signal: Annotated[int | None, Field(description="The signal that ended it.")] = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stale_since: Annotated[
        datetime | None, Field(description="Since when Slurm has not reported the job's state.")
    ] = None
    run: Annotated[int | None, Field(description="How often Slurm has started this attempt.")] = None
    attempts: Annotated[
        int | None, Field(description="The number of its jobs in Slurm so far, including the current one.")
    ] = None
    resumed: Annotated[
        int | None, Field(description="How many of them followed a suspension, not a failure.")
    ] = None
    dependencies_met: Annotated[
        bool | None,
        Field(description="Its dependencies are met; further attempts do not wait for them."),
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
        """The condition of this type, if there is one."""
        return next((item for item in self.conditions if item.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether the condition of this type is True."""
        condition = self.condition(kind)
        return condition is not None and condition.status is ConditionStatus.TRUE

    @property
    def finished(self) -> bool:
        """Whether the last attempt has ended."""
        return self.holds(ConditionType.FINISHED)

    def written(self) -> dict[str, Any]:
        """As JSON for the API server."""
        written = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return {name: value for name, value in written.items() if value != []}
