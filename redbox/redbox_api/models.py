"""The contract: requests and responses between red-box and its callers.

An unknown field of a request is rejected by its name; responses may grow, so clients ignore unknown fields.
On the wire names are camelCase, as in Kubernetes; in Python they are snake_case. These models make no
decisions: red-box does.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, model_validator

from redbox_api.job_parts import Container, EnvName, EnvValue, JobDetails, RequestModel, SbatchFields
from redbox_api.limits.response_model import ResponseModel
from redbox_api.pod_parts import PodProgram
from redbox_api.pod_report import PodReport
from redbox_shared import job_end

KEY_PATTERN = r"^[A-Za-z0-9-]{1,64}$"
MAX_SCRIPT_BYTES = 4 * 1024 * 1024
Revision = Annotated[str, Field(max_length=256)]
"""Of a list or an event: it is in the query of the next request."""


class Dependency(RequestModel):
    """This job waits for another job of the same caller, named by its key or by Slurm's job id."""

    type: Literal["after", "afterany", "afterok", "afternotok", "aftercorr", "singleton"] = "afterok"
    key: Annotated[str, Field(pattern=KEY_PATTERN)] | None = None
    job_id: Annotated[str | None, Field(alias="jobID", pattern=r"^[0-9]{1,10}(_[0-9]{1,10})?$")] = None

    @model_validator(mode="after")
    def _names_one_job(self) -> Dependency:
        named = [name for name in (self.key, self.job_id) if name is not None]
        if len(named) != (0 if self.type == "singleton" else 1):
            raise ValueError("a dependency names exactly one of key and jobID (singleton names none)")
        return self


class JobRequest(SbatchFields):
    """One job: a batch script, a container or a pod, and the resources it needs."""

    batch: str | None = None
    container: Container | None = None
    pod: PodProgram | None = None
    name: str | None = Field(
        None,
        min_length=1,
        max_length=128,
        pattern=r"^[^\x00-\x1f\x7f/]+$",
        description="Slurm's name of the job where neither its options nor its script has a --job-name",
    )
    env: Annotated[dict[EnvName, EnvValue], Field(max_length=1024)] = {}
    dependencies: Annotated[list[Dependency], Field(max_length=64, fail_fast=True)] = []
    hold: bool = False
    spec_digest: str | None = Field(
        None, max_length=128, description="hash of the immutable spec; sameness is judged by it where given"
    )

    @model_validator(mode="after")
    def _is_one_kind(self) -> JobRequest:
        if sum(kind is not None for kind in (self.batch, self.container, self.pod)) != 1:
            raise ValueError("a job has exactly one of batch, container and pod")
        if self.arguments and self.batch is None:
            raise ValueError("arguments are those of a batch script")
        return self


class Phase(StrEnum):
    """Where a job is, by red-box's own phases; `state` is Slurm's."""

    SUBMITTING = "Submitting"  # journaled; Slurm has not confirmed an id yet
    PENDING = "Pending"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    LOST = "Lost"  # Slurm has no record of it; its outcome is unknown


FINAL_PHASES = frozenset(map(Phase, job_end.FINAL_PHASES))


class OwnerRef(ResponseModel):
    """The owner of a job."""

    cluster: str
    namespace: str
    account: str


class ArrayCounts(ResponseModel):
    """How many tasks of an array are in each phase."""

    total: int
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


class ArrayTask(ResponseModel):
    """One task of an array; only GET of a single job lists tasks."""

    index: int
    job_id: Annotated[str, Field(alias="jobID")]
    phase: Phase
    state: str
    exit_code: int | None = None
    signal: int | None = None


class LogPath(ResponseModel):
    """Where the job's output goes, as Slurm resolved it; None until Slurm has reported it."""

    stdout: str | None = None
    stderr: str | None = None


class Job(JobDetails, ResponseModel):
    """One job. Unknown fields are None; `staleSince` is set while Slurm does not answer."""

    key: str
    attempt: int
    owner: OwnerRef
    user: str
    phase: Phase
    reason: str | None = None
    message: str | None = None  # one sentence for a person: why it failed, waits, or is lost
    cluster: str | None = None
    name: str | None = None
    account: str | None = None
    qos: str | None = None
    run: int = 1  # 1, then one more for each requeue
    logs: LogPath = LogPath()
    array: ArrayCounts | None = None
    tasks: list[ArrayTask] | None = None
    is_pod: bool = False
    pod: PodReport | None = None  # of a pod's job: what its runner reported last
    pod_inputs: str | None = None  # as its sender gave them last; without them a pod cannot be updated
    no_sign_of_start: bool = False  # of a job that is lost or failed: so it may be retried at once
    cancel_requested: bool = False
    env_changed: bool = False
    spec_digest: str | None = None
    warnings: list[str] = []
    revision: str | None = None


class Cancelled(ResponseModel):
    """The jobs that a DELETE cancelled."""

    items: list[Job]


class JobList(ResponseModel):
    """A page of jobs; a watch from `revision` misses nothing."""

    items: list[Job]
    revision: Revision
    next: Annotated[str | None, Field(max_length=2048)] = None


class WatchEvent(ResponseModel):
    """One line of a watch: a job that changed, one that is gone from the table, or a bookmark.

    A job is shown in its newest state: one that it had for a short time may be skipped, its last one is not.
    """

    type: Literal["job", "gone", "bookmark", "error"]
    revision: Revision
    job: Job | None = None
    message: str | None = None


class Problem(ResponseModel):
    """An error (RFC 9457); `retry`: the same request may succeed later."""

    type: str
    title: str
    status: int
    detail: str
    retry: bool = False
    request_id: str | None = None


class PartitionLimits(ResponseModel):
    """Limits of a partition for one job, as configured; None is UNLIMITED.

    Slurm has no such limit on GPUs: theirs is the number in the best equipped node, None without nodes.
    """

    max_time_s: int | None = None
    default_time_s: int | None = None
    max_nodes: int | None = None
    max_cpus_per_node: int | None = None
    max_mem_mb_per_node: int | None = None
    max_gpus_per_node: int | None = None


class Amounts(ResponseModel):
    """Countable resources, all of them or the free ones."""

    nodes: int
    cpus: int
    mem_mb: int
    gpus: int = 0
    gres: dict[str, int] = {}


class Partition(ResponseModel):
    """A partition, with all its resources and the free ones."""

    name: str
    is_default: bool = False
    state: str  # UP, DOWN, DRAIN, INACTIVE
    total: Amounts
    free: Amounts
    largest_node: Amounts | None = None  # of each thing the most that any one node has; None: no nodes
    limits: PartitionLimits = PartitionLimits()
    features: list[str] = []
    node_states: dict[str, int] = {}
    reason: str | None = None


class PartitionList(ResponseModel):
    """All partitions that this caller may use."""

    items: list[Partition]
    revision: Revision
    stale_since: datetime | None = None


class PartitionEvent(ResponseModel):
    """One line of a watch: a partition that is new or has changed, one that was removed, or a bookmark.

    A bookmark has `staleSince` while Slurm does not answer.
    """

    type: Literal["partition", "gone", "bookmark", "error"]
    revision: Revision
    partition: Partition | None = None
    message: str | None = None
    stale_since: datetime | None = None


class Cluster(ResponseModel):
    """The cluster behind this red-box."""

    name: str
    workload_manager: str
    version: str
    redbox_version: str
    accounting: bool
    nodes: dict[str, int] = {}  # node state -> how many
    warnings: list[str] = []
    stale_since: datetime | None = None
    credentials_expire_at: AwareDatetime | None = None  # those with which red-box logs in at the login node


class WhoAmI(ResponseModel):
    """The caller's identity, Unix user and rights."""

    identity: str
    owner: OwnerRef
    user: str | None = Field(None, description="left out where the mapping gives none, as to an operator")
    roles: list[str]
    accounts: list[str] | None = None
    partitions: list[str] | None = None
    slurm_accounts: list[str] = []
    slurm_qos: list[str] = []


class Check(ResponseModel):
    """The result of `sbatch --test-only` for a request."""

    valid: bool
    would_start_at: datetime | None = None
    detail: str


class ExpectedStart(ResponseModel):
    """When a waiting job would start, by the last cycle of Slurm's scheduler: the next one may change it.

    Of an array it is the earliest of the tasks that wait; of a het job the latest of the components.
    """

    reason: str = Field(description="why it waits, in Slurm's word")
    starts_at: datetime | None = Field(None, description="left out where Slurm has no estimate")
    nodes: str | None = Field(None, description="on which it would start, as a hostlist: n[1-3]")
    not_before: datetime | None = Field(
        None, description="its begin time, where Slurm's scheduler does not consider the job yet"
    )


class FileEntry(ResponseModel):
    """A file in a job's working directory."""

    path: str
    size: int
    mode: int
    modified_at: datetime
    kind: Literal["file", "directory", "symlink", "other"]
    target: str | None = None


class FileList(ResponseModel):
    """The files that match a glob."""

    items: list[FileEntry]
    truncated: bool = False


class VolumeRequest(RequestModel):
    """A folder for a volume; the namespace in its name is the caller's own."""

    claim: Annotated[
        str,
        Field(
            max_length=253,
            pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
            description="the claim's name, for people who see the folder",
        ),
    ]
    group_shared: bool = Field(
        default=False, description="mode 2770 instead of 0700: the folder's group may use it too"
    )


class VolumeFolder(ResponseModel):
    """A folder that red-box made for a volume."""

    handle: str
    owner: OwnerRef
    user: str
    claim: str
    path: str
    made: bool  # False: a PUT that made it has not succeeded yet
    deleted_at: datetime | None = None


class JobUsage(ResponseModel):
    """Usage of one running job; of an array, of all its running tasks together."""

    key: str
    attempt: int
    measured_at: datetime
    cpu_seconds: float = Field(description="of all its processes since its start; never less than before")
    memory_bytes: int = Field(description="of all its processes, at that moment")


class UsageList(ResponseModel):
    """Running jobs that were measured."""

    items: list[JobUsage]
    stale_since: datetime | None = None


class EndedUsage(ResponseModel):
    """Usage of the last run of an ended job, against what it had; what was not measured is left out.

    Of an array: the CPU time of all tasks, the memory of the task that used most, the longest task's time.
    """

    key: str
    attempt: int
    cpus: int = Field(description="that it had at once; of an array, each task")
    cpu_seconds: float | None = Field(None, description="of all its processes")
    allocated_cpu_seconds: int = Field(description="its CPUs, for as long as it had them")
    memory_bytes: int | None = Field(None, description="the peak of its largest step, as seff has it")
    allocated_memory_bytes: int | None = None
    elapsed_seconds: int
    time_limit_seconds: int | None = Field(None, description="left out where there is no limit")


class EndedUsageList(ResponseModel):
    """Those of the ended jobs that Slurm's accounting has the end of."""

    items: list[EndedUsage]
    accounting: bool = Field(description="false: Slurm there has no accounting, and the list is empty")
