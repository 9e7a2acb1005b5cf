"""The status of a SlurmJob: the model that the CRD's schema is generated from, always written as a whole.

Unknown fields are left out. The operator stores nothing else about a job: after a restart it continues from
the status and red-box's rows.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from redbox_api.job_parts import JobDetails
from redbox_kube.status.conditions import ConditionStatus, StatusCondition
from redbox_kube.status.models import StatusPart

MOST_ATTEMPTS = 1_000_000
"""As red-box has it. A user may be allowed to write statuses, and steps for each attempt must end."""


class JobPhase(StrEnum):
    """The phase of a SlurmJob."""

    PENDING = "Pending"  # not in Slurm yet, or between two attempts
    SUBMITTED = "Submitted"  # in Slurm's queue
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class ConditionType(StrEnum):
    """Condition types of a SlurmJob, as in `kubectl wait --for=condition=Finished`."""

    SUBMITTED = "Submitted"  # Slurm has the job
    RUNNING = "Running"
    HELD = "Held"  # Slurm was asked to hold it, or holds it after a failed launch
    SYNCED = "Synced"  # the status is red-box's newest, and the log can be read
    FINISHED = "Finished"  # any end, after the last attempt
    COMPLETE = "Complete"  # success
    FAILED = "Failed"  # failed, cancelled or lost
    RESULTS_COLLECTED = "ResultsCollected"  # where results are requested; names those that were not copied


class CompanionStatus(StatusPart):
    """The pod that represents the job. Only the pod of this uid is trusted."""

    name: str
    uid: str | None = Field(None, description="The pod's uid; another pod of that name is not trusted.")
    attempt: int = Field(description="The attempt that it represents.")
    request: str | None = Field(None, description="The digest of its request to red-box.")
    done: bool | None = Field(None, description="It has finished its work and is not created again.")
    replaced: int | None = Field(
        None, description="How often it was created again recently, because it ended before it had finished."
    )
    replaced_at: datetime | None = None


class ArrayStatus(StatusPart):
    """Number of tasks of an array by phase."""

    total: int
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class ResultsStatus(StatusPart):
    """The outcome of copying results into the volume."""

    outcome: str = Field(description="Collected, Skipped or Failed.")
    files: int | None = None
    bytes: int | None = None
    message: str | None = None


class SlurmJobStatus(JobDetails, StatusPart):
    """The status of a SlurmJob, as the operator writes it."""

    phase: JobPhase = Field(
        JobPhase.PENDING,
        description="Pending, Submitted, Running, Suspended, Succeeded, Failed or Cancelled.",
    )
    status: JobPhase = Field(
        JobPhase.PENDING,
        description="For tools written for older operators: the same as `phase`; in Sylabs' kinds Pending, "
        "Running, Succeeded or Failed.",
    )
    reason: str | None = Field(
        None, description="Slurm's reason why it waits or ended, or Red Box's own reason."
    )
    message: str | None = Field(None, description="One sentence for a person: what happened, and what to do.")
    cluster: str | None = Field(None, description="The SlurmCluster that it was submitted to.")
    endpoint: str | None = Field(None, description="Or the SlurmEndpoint that it was submitted to.")
    user: str | None = Field(None, description="The Unix account that it runs as.")
    node_list: str | None = Field(None, description="The nodes as a host list: n[1-3].")
    run: int | None = Field(None, description="How often Slurm has started this attempt.")
    attempts: int | None = Field(
        None,
        ge=1,
        le=MOST_ATTEMPTS,
        description="The number of its jobs in Slurm so far, including the current one.",
    )
    resumed: int | None = Field(
        None, ge=0, le=MOST_ATTEMPTS, description="How many of them followed a suspension, not a failure."
    )
    relaunches: int | None = Field(
        None,
        ge=0,
        le=MOST_ATTEMPTS,
        description="How often a job was released that Slurm held after a failed launch: each is a retry.",
    )
    relaunched_run: int | None = Field(None, description="The run of this attempt that was released last.")
    dependencies_met: bool | None = Field(
        None, description="Its dependencies are met; further attempts do not wait for them."
    )
    array: ArrayStatus | None = None
    results: ResultsStatus | None = None
    stdout: str | None = Field(
        None, description="The file of its stdout on the Slurm cluster; of an array each task has its own."
    )
    stderr: str | None = Field(None, description="Likewise of its stderr.")
    companion: CompanionStatus | None = None
    conditions: list[StatusCondition] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
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


DETAILS = ("state", "partition", "user", "run", "working_directory", "stdout", "stderr", "submitted_at")
QUEUE_DETAILS = ("reason", "message")
"""Slurm's reason for the wait of a job in its queue; in other phases these say more than the phase."""


def is_detail(before: SlurmJobStatus, after: SlurmJobStatus) -> bool:
    """Whether something differs, and nothing but details: no phase, no condition, no companion."""
    in_queue = before.phase is after.phase is JobPhase.SUBMITTED
    return before != after and _main_part(before, in_queue=in_queue) == _main_part(after, in_queue=in_queue)


def _main_part(status: SlurmJobStatus, *, in_queue: bool) -> SlurmJobStatus:
    left_out: dict[str, object] = dict.fromkeys(DETAILS)
    if in_queue:
        left_out |= dict.fromkeys(QUEUE_DETAILS)
        left_out["conditions"] = [
            condition.model_copy(update={"message": ""}) for condition in status.conditions
        ]
    return status.model_copy(update=left_out)
