"""What red-box asks of a workload manager, and what it gets back.

`slurm` and `local` implement `WorkloadManager`; `jobs` uses nothing else of them. Everything here is bound to
a user and, once a job exists, to its id *and* its mark, because ids come back (see `marks`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from redbox.core.domain import Limits, UnixUser
from redbox_api.models import Check, Cluster, JobRequest, Partition


@dataclass(frozen=True, slots=True)
class Submission:
    """A request that is ready for the workload manager: the mark is made, the directory is known."""

    request: JobRequest
    mark: str
    job_name: str
    working_directory: str
    directory_key: str  # 8 characters of the key: ends the default directory
    limits: Limits = field(default_factory=Limits)
    dependencies: tuple[str, ...] = ()  # resolved: afterok:123
    held: bool = False  # submit with --hold although the request does not ask for it (a doubtful retry)


@dataclass(frozen=True, slots=True)
class SubmitAccepted:
    """The workload manager took the job."""

    job_id: str
    warnings: tuple[str, ...] = ()
    working_directory: str | None = None


@dataclass(frozen=True, slots=True)
class SubmitRejected:
    """The workload manager said no, and will say no again: its own words."""

    detail: str


@dataclass(frozen=True, slots=True)
class SubmitUnknown:
    """Nobody knows whether the job was taken (the call hung, died, or answered nonsense)."""

    detail: str


@dataclass(frozen=True, slots=True)
class SubmitUnavailable:
    """The workload manager could not be asked; nothing was submitted, and trying again later is right."""

    detail: str


SubmitOutcome = SubmitAccepted | SubmitRejected | SubmitUnknown | SubmitUnavailable


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job to act on: acts check that the id still carries this mark, and that it is this user's."""

    job_id: str
    mark: str
    job_name: str
    user: UnixUser


class JobAction(StrEnum):
    """What can be done to a job that exists."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an act did, read back: `done` is False with the workload manager's words where it refused."""

    done: bool
    detail: str = ""
    gone: bool = False  # the id is unknown, or carries another mark: nothing was touched


@dataclass(frozen=True, slots=True)
class TaskObservation:
    """One task of an array, as seen."""

    index: int
    job_id: str
    state: str
    exit_code: int | None = None
    signal: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Observation:
    """One job as the workload manager shows it: an array and a het job are one observation each.

    `state` is the base state or flag in Slurm's words, without decoration. `mark` is whatever the job carries
    as comment (or in its submit line): unverified text that any user can forge.
    """

    job_id: str
    uid: int
    mark: str
    state: str
    live: bool  # from the queue (True) or from history (False)
    name: str = ""
    user: str = ""
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: str = ""  # hostlist as given: n[1-3]
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    restarts: int = 0
    requeue: bool = True  # may be requeued (Requeue=1), which makes some ends not final
    cancelled_by: int | None = None
    stdout: str | None = None  # with the workload manager's patterns resolved where it does so
    stderr: str | None = None
    working_directory: str = ""
    comment: str = ""
    tasks: tuple[TaskObservation, ...] = ()
    pending_tasks: int = 0  # of an array: tasks that are not split off yet
    waiting: tuple[range, ...] = ()  # which ones, and those that wait again: none of them is in `tasks`
    array_size: int = 0  # 0 for a job that is no array


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One look at the whole queue.

    `complete` says that nothing was hidden, dropped or cut: only then does a job's absence mean anything.
    Where it is not, `whole` are the uids of those whose own jobs were all shown all the same.
    """

    at: datetime
    took_s: float
    jobs: tuple[Observation, ...]
    complete: bool
    dropped: int = 0  # records that could not be read
    doubtful: frozenset[str] = frozenset()  # ids with two different records: unknown this time
    whole: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundJobs:
    """Single jobs as the queue shows them; `complete` and `whole` as in Poll."""

    jobs: tuple[Observation, ...]
    complete: bool
    whole: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class AccountingSnapshot:
    """What the accounting says of jobs that the queue has forgotten; `complete` and `whole` as in Poll."""

    jobs: tuple[Observation, ...]
    complete: bool
    available: bool = True  # False: there is no accounting here
    whole: frozenset[int] = frozenset()


class Completeness(Protocol):
    """What was shown of jobs: a Poll, a History, and what is made of them."""

    @property
    def complete(self) -> bool: ...
    @property
    def whole(self) -> frozenset[int]: ...


def shows_all_jobs_of(uid: int, shown: Completeness) -> bool:
    """Whether the absence of a job of this user means anything."""
    return shown.complete or uid in shown.whole


@dataclass(frozen=True, slots=True)
class StepUsage:
    """What one step of a running job uses; `job_id` is its own, of an array the task's."""

    job_id: str
    step: str
    cpu_s: float
    memory_bytes: int


class WorkloadManagerError(Exception):
    """The workload manager could not be asked or did not answer: the last truth stays, and grows stale."""

    def __init__(self, detail: str, *, timed_out: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.timed_out = timed_out


class WorkloadManager(Protocol):
    """The seam between red-box and what runs the jobs."""

    name: str

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        """Submit; never raises for what the workload manager says, and never kills a submit on its way."""
        ...

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        """Would it be accepted, and when would it start."""
        ...

    async def act(self, handle: JobHandle, act: JobAction, *, signal: str | None = None) -> ActionResult:
        """Do it as the job's user, bound to id and mark, and read back what it did."""
        ...

    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        """Take away what was laid ready for a job that has ended; raises WorkloadFault if that failed."""
        ...

    async def poll(
        self, *, users: Collection[UnixUser] | None = None, wanted: Callable[[str, str], bool] | None = None
    ) -> QueueSnapshot:
        """One look at the queue; of these users only where that is cheaper or all that may be seen.

        `wanted` says of an id and a mark whether they can matter: other jobs need not be shown.
        """
        ...

    async def glance(self, job_ids: Collection[str]) -> int | None:
        """A number that changes when one of these jobs changes its state; None where a poll costs no more.

        It only tells whether a poll is worth its price: nothing follows from it about any job.
        """
        ...

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        """Ask for single jobs, of these users, that a poll did not show."""
        ...

    async def history(
        self, job_ids: Collection[str], *, since: datetime, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        """Ask the accounting for jobs, of these users, by id."""
        ...

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:
        """Ask the accounting for all jobs of a user: how an id is found by its mark."""
        ...

    async def usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[StepUsage, ...]:
        """What the steps of these jobs of the user use now; what nobody measured is not among them."""
        ...

    async def submitting(self, user: UnixUser, mark: str) -> bool:
        """Whether a submit with this mark is still under way on this host."""
        ...

    def appends(self) -> bool:
        """Whether a run writes behind what is in its output file, where a job does not say, as last heard."""
        ...

    async def cluster(self) -> Cluster:
        """Name, versions, nodes."""
        ...

    async def partitions(self) -> tuple[Partition, ...]:
        """Every partition with its totals, free, limits, features."""
        ...

    async def associations(self, user: UnixUser) -> Mapping[str, tuple[str, ...]]:
        """Accounts of the user, and the QOS of each."""
        ...
