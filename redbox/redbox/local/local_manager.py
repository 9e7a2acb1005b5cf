"""The local workload manager: first come, first served, a job for each slot, for a single user.

It rejects what it does not support: arrays, dependencies, begin times, requeues, jobs of other users.
"""

from __future__ import annotations

import os
import posixpath
import pwd
import signal
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from importlib.metadata import version

from redbox.agents.program.commands import account_environment
from redbox.core.domain import UnixUser
from redbox.core.observations import Observation
from redbox.core.workload_manager import (
    AccountingSnapshot,
    ActionResult,
    FoundJobs,
    JobAction,
    JobHandle,
    JobOutput,
    QueueSnapshot,
    ReportPiece,
    ReportPosition,
    StepUsage,
    Submission,
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
)
from redbox.local.job_store import LocalJob, LocalJobStatus, LocalJobStore
from redbox.local.settings import LocalSettings
from redbox.slurm.commands.scancel import read_signal
from redbox.slurm.errors import RequestRefused
from redbox.slurm.submit.container_script import ContainerPaths, build_container_script, container_environment
from redbox.slurm.text.batch_script import encode_script
from redbox.slurm.text.states import JOB_STATES, end_of, has_ended
from redbox.slurm.text.values import read_duration
from redbox_api.models import Amounts, Check, Cluster, ExpectedStart, JobRequest, Partition
from redbox_shared.wire import HELD_BY_USER

NAME = "local"
DIRECTORIES = ["/usr/local/bin", "/usr/bin", "/bin"]


class LocalManager:
    """A `WorkloadManager` for the user who runs red-box."""

    name = NAME
    states = JOB_STATES

    def __init__(self, settings: LocalSettings | None = None) -> None:
        self._settings = settings or LocalSettings()
        self._slots = self._settings.slots or os.cpu_count() or 1
        self._store = LocalJobStore(self._settings.directory)
        self._account = pwd.getpwuid(os.geteuid())

    # ------------------------------------------------------------------------------------------ submitting
    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        try:
            self._refuse_other_users(user)
            job, script = self._build_job(submission)
            os.makedirs(job.working_directory, exist_ok=True)  # noqa: PTH103 (local, and so as quick as any)
        except RequestRefused as refused:
            return SubmitRejected(refused.detail)
        except OSError as error:
            return SubmitRejected(f"workingDirectory: {error}")
        earlier = (status.job for status in self._store.all() if status.job.mark == submission.mark)
        held = submission.request.hold or submission.held
        try:
            job = next(earlier, None) or self._store.add(job, script, held=held)
        except OSError as error:
            return SubmitUnavailable(f"the job's files cannot be written: {error}")
        self._start_waiting()
        return SubmitAccepted(job.job_id, working_directory=job.working_directory)

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        try:
            self._refuse_other_users(user)
            self._build_job(submission)
        except RequestRefused as refused:
            return Check(valid=False, detail=refused.detail)
        return Check(valid=True, detail="It would start as soon as a slot is free.")

    def _refuse_other_users(self, user: UnixUser) -> None:
        if user.uid != self._account.pw_uid:
            raise RequestRefused(
                f"This red-box runs only jobs of {self._account.pw_name}, not of {user.name}."
            )

    def _build_job(self, submission: Submission) -> tuple[LocalJob, bytes]:
        request, home = submission.request, self._account.pw_dir
        refuse_unsupported(request)
        directory = submission.working_directory.replace("{home}", home)
        if request.container is not None:
            cache = ContainerPaths(posixpath.join(home, ".cache", "redbox", "images"))
            script, env = build_container_script(request, cache), container_environment(request.env)
        else:
            script, env = request.batch or "", dict(request.env)
        stdout = posixpath.join(directory, request.output or "local-%j.out")
        merged = request.output is not None and request.error is None
        limit = request.resources.time
        job = LocalJob(
            job_id="",
            mark=submission.mark,
            name=submission.job_name or "job",
            submitted_at=time.time(),
            working_directory=directory,
            stdout=stdout,
            stderr=stdout if merged else posixpath.join(directory, request.error or "local-%j.err"),
            env={**account_environment(self._account, DIRECTORIES), **env},
            time_limit_s=read_duration(limit) if limit is not None else None,
            arguments=request.arguments,
        )
        return job, encode_script(script)

    def _start_waiting(self) -> None:
        statuses = self._store.all()
        free = self._slots - sum(status.state in ("RUNNING", "CONFIGURING") for status in statuses)
        waiting = [s for s in statuses if s.state == "PENDING" and s.reason != HELD_BY_USER]
        for status in waiting[: max(0, free)]:
            self._store.start(status.job.job_id)

    async def submitting(self, user: UnixUser, mark: str) -> bool:  # noqa: ARG002 (a submit is one rename)
        return False

    # ------------------------------------------------------------------------------------------ actions
    async def act(
        self, handle: JobHandle, act: JobAction, *, signal: str | None = None, run: int | None = None
    ) -> ActionResult:
        del run  # a local job has one
        status = self._status_of(handle)
        if status is None:
            return ActionResult(done=False, gone=True, detail=f"There is no such job {handle.job_id}.")
        if has_ended(status.state):
            return ActionResult(
                done=act is JobAction.CANCEL, detail=f"Job {handle.job_id} had already ended."
            )
        result = self._act(status, act, signal or "")
        self._start_waiting()
        return result

    def _status_of(self, handle: JobHandle) -> LocalJobStatus | None:
        """None if the id is unknown, or is another job's."""
        status = self._store.get(handle.job_id)
        is_same = status is not None and status.job.mark == handle.mark
        return status if is_same and handle.user.uid == self._account.pw_uid else None

    def _act(self, status: LocalJobStatus, act: JobAction, signal_name: str) -> ActionResult:
        job_id, pending = status.job.job_id, status.state == "PENDING"
        match act:
            case JobAction.CANCEL if pending:
                self._store.cancel_pending(job_id)
            case JobAction.CANCEL:
                return _send(status.supervisor_pid, signal.SIGTERM)
            case JobAction.HOLD | JobAction.RELEASE if pending:
                self._store.hold(job_id, held=act is JobAction.HOLD)
            case JobAction.SIGNAL if not pending:
                return _signal(status, signal_name)
            case JobAction.REQUEUE:
                return ActionResult(done=False, detail="The local workload manager does not support requeue.")
            case _:
                return ActionResult(
                    done=False, detail=f"Job {job_id} is {status.state}, which allows no {act}."
                )
        return ActionResult(done=True)

    # ------------------------------------------------------------------------------------------ queries
    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        """A job leaves no files but its output."""

    async def report(
        self,
        user: UnixUser,  # noqa: ARG002 (there are no pods here)
        mark: str,  # noqa: ARG002
        working_directory: str,  # noqa: ARG002
        since: ReportPosition | None,  # noqa: ARG002
    ) -> ReportPiece:
        return ReportPiece(b"", None)

    async def poll(
        self, *, users: Collection[UnixUser] | None = None, wanted: Callable[[str, str], bool] | None = None
    ) -> QueueSnapshot:
        """The whole queue, which is this user's alone."""
        del users
        started = time.monotonic()
        self._start_waiting()
        statuses = [status for status in self._kept_jobs() if self._is_in_queue(status)]
        jobs = tuple(
            self._observe(status, live=True)
            for status in statuses
            if wanted is None or wanted(status.job.job_id, status.job.mark)
        )
        return QueueSnapshot(datetime.now(UTC), time.monotonic() - started, jobs, complete=True)

    async def glance(self, job_ids: Collection[str]) -> int | None:
        """None: a poll costs no more."""

    def _kept_jobs(self) -> list[LocalJobStatus]:
        """All jobs but those that ended too long ago, which are deleted now."""
        kept, oldest = [], time.time() - self._settings.kept_s
        for status in self._store.all():
            if status.ended_at is not None and status.ended_at < oldest:
                self._store.delete(status.job.job_id)
            else:
                kept.append(status)
        return kept

    def _is_in_queue(self, status: LocalJobStatus) -> bool:
        return status.ended_at is None or time.time() - status.ended_at < self._settings.shown_s

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        del users
        found = filter(self._is_in_queue, self._found(job_ids))
        return FoundJobs(tuple(self._observe(status, live=True) for status in found), complete=True)

    async def expected_start(self, handle: JobHandle) -> ExpectedStart | None:
        """Without a time: nothing says when a slot becomes free."""
        status = self._status_of(handle)
        is_waiting = status is not None and status.state == "PENDING"
        return ExpectedStart(reason=status.reason) if status is not None and is_waiting else None

    async def history(
        self, job_ids: Collection[str], *, since: datetime, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        del since, users
        found = self._found(job_ids)
        return AccountingSnapshot(tuple(self._observe(s, live=False) for s in found), complete=True)

    def _found(self, job_ids: Collection[str]) -> list[LocalJobStatus]:
        return [status for job_id in job_ids if (status := self._store.get(job_id)) is not None]

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:
        kept = self._kept_jobs() if user.uid == self._account.pw_uid else []
        jobs = (self._observe(status, live=False) for status in kept)
        return AccountingSnapshot(
            tuple(job for job in jobs if job.submitted_at and job.submitted_at >= since), complete=True
        )

    def _observe(self, status: LocalJobStatus, *, live: bool) -> Observation:
        job, account, end = status.job, self._account, end_of(status.state, status.exit)
        return Observation(
            job_id=job.job_id,
            uid=account.pw_uid,
            mark=job.mark,
            comment=job.mark,
            state=status.state,
            live=live,
            name=job.name,
            user=account.pw_name,
            reason=status.reason,
            exit_code=end.code,
            signal=end.signal,
            partition=NAME,
            nodes=os.uname().nodename if status.started_at else "",
            submitted_at=_datetime(job.submitted_at),
            started_at=_datetime(status.started_at),
            ended_at=_datetime(status.ended_at),
            requeue=False,
            cancelled_by=account.pw_uid if status.state == "CANCELLED" else None,
            stdout=job.stdout,
            stderr=job.stderr,
            working_directory=job.working_directory,
        )

    # ------------------------------------------------------------------------------------------ the cluster
    async def cluster(self) -> Cluster:
        return Cluster(
            name=NAME,
            workload_manager=NAME,
            version=version("red-box"),
            redbox_version=version("red-box"),
            accounting=True,
            nodes={"idle": 1},
        )

    async def partitions(self) -> tuple[Partition, ...]:
        running = sum(status.state == "RUNNING" for status in self._store.all())
        slots, memory = self._slots, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        free = max(0, slots - running)
        return (
            Partition(
                name=NAME,
                is_default=True,
                state="UP",
                total=Amounts(nodes=1, cpus=slots, mem_mb=memory),
                free=Amounts(nodes=int(free == slots), cpus=free, mem_mb=memory),
                largest_node=Amounts(nodes=1, cpus=slots, mem_mb=memory),
                node_states={"idle": 1},
            ),
        )

    async def depend(self, handle: JobHandle, dependencies: Collection[str]) -> ActionResult:
        del handle, dependencies
        return ActionResult(done=False, detail="Jobs on this machine have no dependencies.")

    async def boot_time(self) -> str:
        return ""  # no controller, and nothing that one could forget

    def expire_boot_time(self) -> None:
        pass

    async def find_outputs(self, user: UnixUser, outputs: Collection[JobOutput]) -> Mapping[JobOutput, bool]:
        del user
        return dict.fromkeys(outputs, True)  # never asked for, without a controller

    def appends(self) -> bool:
        return False

    async def usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[StepUsage, ...]:
        del user, job_ids
        return ()

    async def past_usage(self, user: UnixUser, job_ids: Collection[str]) -> None:
        del user, job_ids  # there is no accounting

    async def associations(self, user: UnixUser) -> Mapping[str, tuple[str, ...]]:
        del user
        return {}


def refuse_unsupported(request: JobRequest) -> None:
    """Refuse a request rather than run something else."""
    options = request.container.options if request.container is not None else None
    resources = request.resources
    for given, reason in (
        (request.pod, "pods: they need Slurm and Apptainer; submit a batch script or a container instead"),
        (request.array, "array"),
        (request.dependencies, "dependencies"),
        (request.begin, "begin: it starts jobs as soon as a slot is free"),
        (request.options, "options of sbatch"),
        (options is not None and options.mpi, "container.options.mpi"),
        ((resources.nodes or 1) > 1, "resources.nodes above 1: it has one node"),
        ((resources.tasks or 1) > 1, "resources.tasks above 1: it runs one task a job"),
        (request.partition not in (None, NAME), f"partition: its only partition is {NAME!r}"),
        (request.container is not None and request.container.registry, "container.registry"),
    ):
        if given:
            raise RequestRefused(f"The local workload manager does not support {reason}.")


def _send(pid: int | None, number: int) -> ActionResult:
    try:
        if pid is not None:
            os.kill(pid, number)
            return ActionResult(done=True)
    except ProcessLookupError:
        pass
    return ActionResult(done=False, detail="The job is starting or ending. Retry.")


def _signal(status: LocalJobStatus, name: str) -> ActionResult:
    try:
        text = read_signal(name)
    except RequestRefused as refused:
        return ActionResult(done=False, detail=refused.detail)
    number = int(text) if text.isdigit() else signal.Signals[f"SIG{text}"]
    return _send(-status.script_pid if status.script_pid is not None else None, number)


def _datetime(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None
