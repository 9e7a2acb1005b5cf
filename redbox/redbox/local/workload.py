"""The local workload manager: first come, first served, a job for each slot, for one user alone.

It refuses in words what it does not do: arrays, dependencies, begin times, requeues, jobs of others.
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
from pathlib import Path

from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    AccountingSnapshot,
    ActionResult,
    FoundJobs,
    JobAction,
    JobHandle,
    Observation,
    QueueSnapshot,
    StepUsage,
    Submission,
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
)
from redbox.local.settings import LocalSettings
from redbox.local.store import JobStore, LocalJob, Standing
from redbox.slurm.commands.batch_script import encode_script
from redbox.slurm.commands.scancel import read_signal
from redbox.slurm.errors import RequestRefused
from redbox.slurm.submit.container_script import Places, container_environment, plan_container
from redbox.slurm.text.states import JOB_STATES, Exit, end_of, has_ended
from redbox.slurm.text.values import read_duration
from redbox_api.models import Amounts, Check, Cluster, JobRequest, Partition

NAME = "local"
MEMINFO = Path("/proc/meminfo")


class LocalManager:
    """A `WorkloadManager` for the user who runs red-box."""

    name = NAME
    states = JOB_STATES

    def __init__(self, settings: LocalSettings | None = None) -> None:
        self._settings = settings or LocalSettings()
        self._slots = self._settings.slots or os.cpu_count() or 1
        self._store = JobStore(self._settings.directory)
        self._account = pwd.getpwuid(os.geteuid())

    # ------------------------------------------------------------------------------------------ submitting
    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        try:
            self._refuse_others(user)
            job, script = self._plan(submission)
            os.makedirs(job.working_directory, exist_ok=True)  # noqa: PTH103 (local, and so as quick as any)
        except RequestRefused as refused:
            return SubmitRejected(refused.detail)
        except OSError as error:
            return SubmitRejected(f"workingDirectory: {error}")
        known = next((seen.job for seen in self._store.all() if seen.job.mark == submission.mark), None)
        if known is None:
            held = submission.request.hold or submission.held
            known = self._store.add(job, script, held=held)
            self._start_waiting()
        return SubmitAccepted(known.job_id, working_directory=known.working_directory)

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        try:
            self._refuse_others(user)
            self._plan(submission)
        except RequestRefused as refused:
            return Check(valid=False, detail=refused.detail)
        return Check(valid=True, detail="It would start as soon as a slot is free.")

    def _refuse_others(self, user: UnixUser) -> None:
        if user.uid != self._account.pw_uid:
            raise RequestRefused(
                f"This red-box runs jobs of {self._account.pw_name} only, not of {user.name}."
            )

    def _plan(self, submission: Submission) -> tuple[LocalJob, bytes]:
        request, home = submission.request, self._account.pw_dir
        refuse_what_is_not_done(request)
        directory = submission.working_directory.replace("{home}", home)
        if request.container is not None:
            cache = Places(posixpath.join(home, ".cache", "redbox", "images"))
            script, env = plan_container(request, cache), container_environment(request.env)
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
            env={**self._environment(), **env},
            time_limit_s=read_duration(limit) if limit is not None else None,
        )
        return job, encode_script(script)

    def _environment(self) -> dict[str, str]:
        account = self._account
        return {
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell or "/bin/sh",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }

    def _start_waiting(self) -> None:
        """Start the oldest that wait for a slot."""
        standings = self._store.all()
        free = self._slots - sum(seen.state in ("RUNNING", "CONFIGURING") for seen in standings)
        waiting = [seen for seen in standings if seen.state == "PENDING" and seen.reason != "JobHeldUser"]
        for seen in waiting[: max(0, free)]:
            self._store.start(seen.job.job_id)

    async def submitting(self, user: UnixUser, mark: str) -> bool:  # noqa: ARG002 (a job is there or it is not)
        return False

    # ------------------------------------------------------------------------------------------ acts
    async def act(self, handle: JobHandle, act: JobAction, *, signal: str | None = None) -> ActionResult:
        seen = self._store.get(handle.job_id)
        if seen is None or seen.job.mark != handle.mark or handle.user.uid != self._account.pw_uid:
            return ActionResult(done=False, gone=True, detail=f"There is no such job {handle.job_id}.")
        if has_ended(seen.state):
            return ActionResult(
                done=act is JobAction.CANCEL, detail=f"Job {handle.job_id} had already ended."
            )
        outcome = self._act(seen, act, signal or "")
        self._start_waiting()
        return outcome

    def _act(self, seen: Standing, act: JobAction, signal_name: str) -> ActionResult:
        job_id, pending = seen.job.job_id, seen.state == "PENDING"
        match act:
            case JobAction.CANCEL if pending:
                self._store.cancel_pending(job_id)
            case JobAction.CANCEL:
                return _send(seen.supervisor_pid, signal.SIGTERM)
            case JobAction.HOLD | JobAction.RELEASE if pending:
                self._store.hold(job_id, held=act is JobAction.HOLD)
            case JobAction.SIGNAL if not pending:
                return _signal(seen, signal_name)
            case JobAction.REQUEUE:
                return ActionResult(done=False, detail="The local workload manager does not run a job again.")
            case _:
                return ActionResult(done=False, detail=f"Job {job_id} is {seen.state}: it cannot be {act}ed.")
        return ActionResult(done=True)

    # ------------------------------------------------------------------------------------------ looking
    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:
        """Nothing is laid ready: what a job is given ends with it."""

    async def poll(
        self, *, users: Collection[UnixUser] | None = None, wanted: Callable[[str, str], bool] | None = None
    ) -> QueueSnapshot:
        """The whole queue, which is this user's alone."""
        del users
        started = time.monotonic()
        self._start_waiting()
        shown = [seen for seen in self._remembered() if self._is_shown(seen)]
        if wanted is not None:
            shown = [seen for seen in shown if wanted(seen.job.job_id, seen.job.mark)]
        jobs = tuple(self._observe(seen, live=True) for seen in shown)
        return QueueSnapshot(datetime.now(UTC), time.monotonic() - started, jobs, complete=True)

    async def glance(self, job_ids: Collection[str]) -> int | None:
        """A poll costs no call of anybody."""

    def _remembered(self) -> list[Standing]:
        """All jobs but those that ended too long ago, which are forgotten now."""
        standings, oldest = self._store.all(), time.time() - self._settings.kept_s
        for seen in standings:
            if seen.ended_at is not None and seen.ended_at < oldest:
                self._store.forget(seen.job.job_id)
        return [seen for seen in standings if seen.ended_at is None or seen.ended_at >= oldest]

    def _is_shown(self, seen: Standing) -> bool:
        return seen.ended_at is None or time.time() - seen.ended_at < self._settings.shown_s

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        del users
        found = [self._store.get(job_id) for job_id in job_ids]
        shown = [seen for seen in found if seen is not None and self._is_shown(seen)]
        return FoundJobs(tuple(self._observe(seen, live=True) for seen in shown), complete=True)

    async def history(
        self, job_ids: Collection[str], *, since: datetime, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        del since, users
        found = [self._store.get(job_id) for job_id in job_ids]
        jobs = tuple(self._observe(seen, live=False) for seen in found if seen is not None)
        return AccountingSnapshot(jobs, complete=True)

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:
        mine = self._remembered() if user.uid == self._account.pw_uid else []
        jobs = (self._observe(seen, live=False) for seen in mine)
        return AccountingSnapshot(
            tuple(job for job in jobs if job.submitted_at and job.submitted_at >= since), complete=True
        )

    def _observe(self, seen: Standing, *, live: bool) -> Observation:
        job, account = seen.job, self._account
        code = (
            Exit(seen.code or 0, seen.signal or 0)
            if seen.code is not None or seen.signal is not None
            else None
        )
        end = end_of(seen.state, code)
        return Observation(
            job_id=job.job_id,
            uid=account.pw_uid,
            mark=job.mark,
            comment=job.mark,
            state=seen.state,
            live=live,
            name=job.name,
            user=account.pw_name,
            reason=seen.reason,
            exit_code=end.code,
            signal=end.signal,
            partition=NAME,
            nodes=os.uname().nodename if seen.started_at else "",
            submitted_at=_moment(job.submitted_at),
            started_at=_moment(seen.started_at),
            ended_at=_moment(seen.ended_at),
            requeue=False,
            cancelled_by=account.pw_uid if seen.state == "CANCELLED" else None,
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
        running = sum(seen.state == "RUNNING" for seen in self._store.all())
        slots, memory = self._slots, memory_mb()
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

    def appends(self) -> bool:
        return False

    async def usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[StepUsage, ...]:
        """Nobody measures it here."""
        del user, job_ids
        return ()

    async def associations(self, user: UnixUser) -> Mapping[str, tuple[str, ...]]:
        del user
        return {}


def refuse_what_is_not_done(request: JobRequest) -> None:
    """In words, rather than running something else than was asked for."""
    options = request.container.options if request.container is not None else None
    resources = request.resources
    for given, what in (
        (request.array, "array: it runs no arrays"),
        (request.dependencies, "dependencies: it knows none"),
        (request.begin, "begin: it starts jobs as soon as it can"),
        (request.options, "options: it has none of sbatch's"),
        (options is not None and options.mpi, "container.options.mpi: it starts no ranks"),
        ((resources.nodes or 1) > 1, "resources.nodes: it has one node"),
        ((resources.tasks or 1) > 1, "resources.tasks: it runs one task a job"),
        (request.partition not in (None, NAME), f"partition: its only one is {NAME!r}"),
        (
            request.container is not None and request.container.registry,
            "container.registry: it keeps no credentials",
        ),
    ):
        if given:
            raise RequestRefused(f"The local workload manager does not do this. {what}.")


def _send(pid: int | None, number: int) -> ActionResult:
    try:
        if pid is not None:
            os.kill(pid, number)
            return ActionResult(done=True)
    except ProcessLookupError:
        pass
    return ActionResult(done=False, detail="It is just starting or ending: try again.")


def _signal(seen: Standing, name: str) -> ActionResult:
    try:
        text = read_signal(name)
    except RequestRefused as refused:
        return ActionResult(done=False, detail=refused.detail)
    number = int(text) if text.isdigit() else signal.Signals[f"SIG{text}"]
    return _send(-seen.script_pid if seen.script_pid is not None else None, number)


def _moment(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None


def memory_mb() -> int:
    first = MEMINFO.read_text().split("\n", 1)[0]
    return int(first.split()[1]) // 1024
