"""The interface between red-box and the workload manager that runs the jobs.

`slurm` and `local` implement `WorkloadManager`; `jobs` uses nothing else of them. Everything here is bound to
a user and, once a job exists, to its id *and* its mark, because ids are reused (see `jobs.record.marks`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from redbox.core.domain import Limits, UnixUser
from redbox.core.observations import Observation
from redbox_api.models import Check, Cluster, ExpectedStart, JobRequest, Partition, Phase
from redbox_api.pod_parts import PodUpdate


@dataclass(frozen=True, slots=True)
class Submission:
    """A request with its mark, its job name and its directory: ready for the workload manager."""

    request: JobRequest
    mark: str
    job_name: str
    working_directory: str
    limits: Limits = field(default_factory=Limits)
    dependencies: tuple[str, ...] = ()  # resolved: afterok:123
    held: bool = False  # a held retry: submit with --hold, whether or not the request asks for it


@dataclass(frozen=True, slots=True)
class SubmitAccepted:
    """The workload manager accepted the job."""

    job_id: str
    warnings: tuple[str, ...] = ()
    working_directory: str | None = None
    stdout: str | None = None  # as in Observation
    stderr: str | None = None
    boot_time: str = ""  # of the controller, as in QueueSnapshot


@dataclass(frozen=True, slots=True)
class SubmitRejected:
    """The workload manager refused, and will refuse again; with its own message."""

    detail: str


@dataclass(frozen=True, slots=True)
class SubmitUnknown:
    """It is unknown whether the job was accepted (the call hung, died, or its answer made no sense)."""

    detail: str


@dataclass(frozen=True, slots=True)
class SubmitUnavailable:
    """The workload manager was unavailable; nothing was submitted, and a retry is right."""

    detail: str


@dataclass(frozen=True, slots=True)
class JobStates:
    """The meaning of the workload manager's states, as a table."""

    phases: Mapping[str, Phase]
    requeued: frozenset[str]  # ends after which it requeues a job, a moment later, if the job allows it
    held_reasons: frozenset[str]  # of a pending job that does not start until it is released
    held_between_runs: frozenset[str]  # paused after a requeue: the next run has not begun

    def phase_of(self, state: str) -> Phase | None:
        """The phase of a job in this state; None for an unknown state, which changes nothing."""
        return self.phases.get(state)

    def has_not_begun(self, state: str) -> bool:
        """Whether a job's run, or its next run, has not begun: it waits, or is held between two runs."""
        return self.phase_of(state) is Phase.PENDING or state in self.held_between_runs

    def is_held(self, job: Observation) -> bool:
        """Whether it waits for a release."""
        return self.phase_of(job.state) is Phase.PENDING and job.reason in self.held_reasons


SubmitOutcome = SubmitAccepted | SubmitRejected | SubmitUnknown | SubmitUnavailable


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job to act on: actions check that the id still carries this mark and belongs to this user."""

    job_id: str
    mark: str
    job_name: str
    user: UnixUser


class JobAction(StrEnum):
    """The actions on a job that exists."""

    CANCEL = "cancel"
    CANCEL_TASK = "cancel-task"  # of an array: its handle has the task's id, 4711_3
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"
    SIGNAL = "signal"
    STOP = "stop"  # of a pod: its runner stops the containers, and ends
    UPDATE = "update"  # of a pod: its runner applies what `update_pod` has written


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action, read back; `detail` is the workload manager's message if it refused."""

    done: bool
    detail: str = ""
    gone: bool = False  # the id is unknown, or carries another mark: nothing was touched


@dataclass(frozen=True, slots=True)
class JobOutput:
    """Where a job writes; of an array `path` still has the patterns that differ by task."""

    path: str
    job_id: str
    job_name: str
    user: UnixUser
    working_directory: str


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One poll of the whole queue.

    `complete`: nothing was hidden, dropped or cut; only then does a job's absence prove anything. If it is
    incomplete, `whole` are the uids of the users whose own jobs it shows all nevertheless.
    """

    at: datetime
    took_s: float
    jobs: tuple[Observation, ...]
    complete: bool
    dropped: int = 0  # records that could not be read
    ambiguous: frozenset[str] = frozenset()  # ids with two different records: unknown this time
    whole: frozenset[int] = frozenset()
    boot_time: str = ""  # identifies the start of the controller, or an earlier one; empty: not known


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """Single jobs as the queue shows them; `complete` and `whole` as in QueueSnapshot."""

    jobs: tuple[Observation, ...]
    complete: bool
    whole: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class AccountingSnapshot(FoundJobs):
    """Jobs as the accounting shows them."""

    available: bool = True  # False: there is no accounting here


class Completeness(Protocol):
    """How much a snapshot shows."""

    @property
    def complete(self) -> bool: ...
    @property
    def whole(self) -> frozenset[int]: ...


def shows_all_jobs_of(uid: int, shown: Completeness) -> bool:
    """Whether the absence of a job of this user proves anything."""
    return shown.complete or uid in shown.whole


@dataclass(frozen=True, slots=True)
class StepUsage:
    """The usage of one step of a running job; `job_id` is that of the job, or of the array's task."""

    job_id: str
    step: str
    cpu_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PastUsage:
    """What the last run of an ended job used of what it had; None: that was not measured, or has no limit.

    Of an array: the CPU time of all tasks, and the memory of the task that used most.
    """

    job_id: str
    mark: str
    submitted_at: datetime | None
    cpus: int
    elapsed_s: int
    allocated_cpu_s: int
    cpu_s: float | None = None
    memory_bytes: int | None = None
    allocated_memory_bytes: int | None = None
    time_limit_s: int | None = None


@dataclass(frozen=True, slots=True)
class ReportPosition:
    """How far the report of a pod was read: in which file, up to the end of which line."""

    device: int
    inode: int
    offset: int
    tail: str = ""  # the hash of the bytes before it; empty: not known


@dataclass(frozen=True, slots=True)
class ReportPiece:
    """The last whole line of a pod's report, unchecked, and where to read on."""

    line: bytes  # empty: there is no new one
    position: ReportPosition | None  # None: there is no such file
    unclear: bool = False  # its file system does not show all of a line yet


class WorkloadManagerError(Exception):
    """The workload manager was unavailable or did not answer: the last states stay, and are stale."""

    def __init__(self, detail: str, *, timed_out: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.timed_out = timed_out


class WorkloadManager(Protocol):
    """The interface between red-box and what runs the jobs."""

    name: str

    @property
    def states(self) -> JobStates:
        """Its table of states."""

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        """Submit; a refusal is an outcome, not an exception, and a submit under way is never killed."""

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        """Whether it would be accepted, and when it would start."""

    async def act(
        self, handle: JobHandle, act: JobAction, *, signal: str | None = None, run: int | None = None
    ) -> ActionResult:
        """Act as the job's user, bound to id and mark, and read back the result.

        With `run` only that run is requeued: one that another run follows already needs nothing.
        """

    async def depend(self, handle: JobHandle, dependencies: Collection[str]) -> ActionResult:
        """Replace the dependencies of a waiting job, as the job's user, bound to id and mark."""
        ...

    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        """Remove the private folder of a job that has ended; raises WorkloadManagerError on failure."""

    async def update_pod(
        self, user: UnixUser, mark: str, working_directory: str, update: PodUpdate
    ) -> ActionResult:
        """Write what has changed of a pod where its runner reads it, at the latest when it starts."""
        ...

    async def report(
        self, user: UnixUser, mark: str, working_directory: str, since: ReportPosition | None
    ) -> ReportPiece:
        """Read on in what a pod's runner reports; raises WorkloadManagerError where that is unknown."""
        ...

    async def poll(
        self, *, users: Collection[UnixUser] | None = None, wanted: Callable[[str, str], bool] | None = None
    ) -> QueueSnapshot:
        """Poll the queue; of these users only if that is cheaper, or if other users' jobs are hidden.

        `wanted` selects by id and mark the jobs that matter: others need not be shown.
        """

    async def probe(self, job_ids: Collection[str]) -> int | None:
        """A fingerprint of these jobs' states, cheaper than a poll; None if there is no cheaper way.

        A change of it only shows that a poll is worth its cost, and nothing about any job.
        """

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        """Query single jobs, of these users, that a poll did not show."""

    async def expected_start(self, handle: JobHandle) -> ExpectedStart | None:
        """When a waiting job would start, as its user sees it; None if the queue has no such job waiting."""

    async def history(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        """Query the accounting for jobs, of these users, by id."""

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:
        """Query the accounting for all jobs of a user, to find an id by its mark."""

    async def usage(self, user: UnixUser, jobs: Collection[JobHandle]) -> tuple[StepUsage, ...]:
        """The present usage of the steps of these jobs of the user, as far as it is measured."""

    async def past_usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[PastUsage, ...] | None:
        """What these jobs of the user used that have ended, from the accounting; None: without one.

        An id that was given again is two jobs, which differ in mark or time of submission.
        """

    async def submitting(self, user: UnixUser, mark: str) -> bool:
        """Whether a submit with this mark is still under way on this host."""

    async def boot_time(self) -> str:
        """Identifies the present start of the controller, which may have forgotten jobs of the one before."""
        ...

    def expire_boot_time(self) -> None:
        """The controller did not answer: polls and submits must not use a boot time of before."""
        ...

    async def find_outputs(self, user: UnixUser, outputs: Collection[JobOutput]) -> Mapping[JobOutput, bool]:
        """Whether these outputs, all of one directory, or those of any task, exist as the user sees them.

        One that cannot be found out is left out.
        """
        ...

    def appends(self) -> bool:
        """Whether a run appends to its output file by default, as of the last query."""

    async def cluster(self) -> Cluster:
        """Name, versions, nodes."""

    async def partitions(self) -> tuple[Partition, ...]:
        """Every partition with its totals, free, limits, features."""

    async def associations(self, user: UnixUser) -> Mapping[str, tuple[str, ...]]:
        """Accounts of the user, and the QOS of each."""
