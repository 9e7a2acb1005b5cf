"""A workload manager in memory, for faults that a real Slurm does not make when asked to.

It forgets jobs, gives ids out twice, takes submits minutes after they were sent, answers late or never, hides
jobs, and writes its accounting late. It lives outside of any event loop: a server that dies takes nothing of
it along, and an sbatch that was begun arrives whether or not anybody still waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from redbox.core.domain import UnixUser
from redbox.core.observations import Observation
from redbox.core.ttl_cache import TtlCache
from redbox.core.workload_manager import (
    AccountingSnapshot,
    ActionResult,
    FoundJobs,
    JobAction,
    JobHandle,
    JobOutput,
    JobStates,
    PastUsage,
    QueueSnapshot,
    ReportPiece,
    ReportPosition,
    StepUsage,
    Submission,
    SubmitAccepted,
    SubmitOutcome,
    SubmitUnknown,
    WorkloadManagerError,
)
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Check, Cluster, ExpectedStart, Partition
from tests.redbox.jobs.clock import SimulatedClock
from tests.redbox.jobs.simulated_updates import SimulatedUpdates
from tests.redbox.jobs.submit_manners import PROMPT, UNAVAILABLE, Manner, Sbatch

ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"})


@dataclass
class SimulatedSlurm(SimulatedUpdates):
    """slurmctld, slurmdbd and the login node's processes."""

    clock: SimulatedClock
    name: str = "simulated"
    states: JobStates = JOB_STATES
    accounting: bool = True
    rows_late_s: float = 0.0
    min_job_age_s: float = 300.0
    down: bool = False  # every read fails
    accounting_down: bool = False
    hidden_uids: frozenset[int] = frozenset()
    unfound_uids: frozenset[int] = frozenset()  # of whom single jobs cannot be asked for
    untold_uids: frozenset[int] = frozenset()  # of whom the accounting cannot be asked
    poll_hangs: bool = False
    tidied: list[str] = field(default_factory=list)
    reports: dict[str, bytes] = field(default_factory=dict)  # by mark: the last line of the pod's runner
    reports_read: list[str] = field(default_factory=list)
    hanging_homes: set[int] = field(default_factory=set)  # by uid
    partitions_now: list[Partition] = field(default_factory=list)
    manners: deque[Manner] = field(default_factory=deque)
    jobs: dict[str, Observation] = field(default_factory=dict)  # what the controller knows
    rows: list[tuple[float, Observation]] = field(default_factory=list)  # accounting: when written, what
    processes: list[Sbatch] = field(default_factory=list)
    acts: list[tuple[JobAction, str]] = field(default_factory=list)
    polls: list[float] = field(default_factory=list)
    probes: list[float] = field(default_factory=list)
    can_glance: bool = True
    ever: list[Observation] = field(default_factory=list)  # every job that was ever taken
    used: dict[str, StepUsage] = field(default_factory=dict)  # by step: what sstat would show
    expected_start_at: datetime | None = None  # of each job that waits
    starts_asked: list[str] = field(default_factory=list)
    usage_asked: list[list[str]] = field(default_factory=list)
    past: list[PastUsage] = field(default_factory=list)  # what sacct would show
    past_asked: list[tuple[str, list[str]]] = field(default_factory=list)
    past_s: float = 0.0  # how long that takes
    history_asked: list[list[str]] = field(default_factory=list)
    next_id: int = 1
    refuse_acts: str = ""
    acts_take_s: float = 0.0  # from the action until it is read back
    boots: int = 1
    outputs: set[str] = field(default_factory=set)  # files that exist
    outputs_unknown: bool = False
    outputs_shared: bool = True  # the nodes see the directories of the login node
    outputs_asked: list[tuple[str, int]] = field(default_factory=list)
    dependencies: dict[str, list[str]] = field(default_factory=dict)  # by job id

    def __post_init__(self) -> None:
        self.recent_boot_time = TtlCache(self.boot_time, 30.0, clock=self.clock)

    # -------------------------------------------------------------------------------- what happens to jobs

    def tick(self) -> None:
        """Let everything arrive that is due, and let the controller forget what ended long ago."""
        for sbatch in self.processes:
            due = sbatch.manner.arrives_s
            is_due = due is not None and self.clock.elapsed >= sbatch.began + due
            if is_due and not sbatch.arrived and not self.down:
                sbatch.arrived = True
                sbatch.job_id = self.take(sbatch.user, sbatch.submission)
        for job in list(self.jobs.values()):
            ended = job.ended_at
            if ended is not None and (self.clock.now() - ended).total_seconds() > self.min_job_age_s:
                del self.jobs[job.job_id]

    def take(self, user: UnixUser, submission: Submission) -> str:
        """A job begins to exist."""
        held = submission.held or submission.request.hold
        job = Observation(
            job_id=self._free_id(),
            uid=user.uid,
            user=user.name,
            mark=submission.mark,
            comment=submission.mark,
            state="PENDING",
            reason="JobHeldUser" if held else "Priority",
            live=True,
            name=submission.job_name or "sbatch",
            partition=submission.request.partition or "debug",
            submitted_at=self.clock.now(),
            working_directory=submission.working_directory,
        )
        self.ever.append(job)
        self.put(job)
        return job.job_id

    def add_foreign(
        self, uid: int, mark: str = "", job_id: str | None = None, **facts: object
    ) -> Observation:
        """A job that red-box has nothing to do with."""
        job = Observation(
            job_id=job_id or self._free_id(),
            uid=uid,
            mark=mark,
            state="PENDING",
            live=True,
            name="theirs",
            submitted_at=self.clock.now(),
        )
        job = replace(job, **facts)  # type: ignore[arg-type]
        self.jobs[job.job_id] = job
        return job

    def _free_id(self) -> str:
        """The next that no living job has; those of forgotten jobs come back."""
        while str(self.next_id) in self.jobs:
            self.next_id += 1
        self.next_id += 1
        return str(self.next_id - 1)

    def put(self, job: Observation) -> None:
        """Change a job, and write its accounting row."""
        self.jobs[job.job_id] = job
        self.rows.append((self.clock.elapsed + self.rows_late_s, replace(job, live=False)))

    def start(self, job_id: str) -> None:
        job = self.jobs[job_id]
        self.put(replace(job, state="RUNNING", reason="None", started_at=self.clock.now(), nodes="n1"))

    def end(
        self, job_id: str, state: str = "COMPLETED", code: int | None = 0, signal: int | None = None
    ) -> None:
        job = self.jobs[job_id]
        self.put(replace(job, state=state, exit_code=code, signal=signal, ended_at=self.clock.now()))

    def requeue(self, job_id: str) -> None:
        job = self.jobs[job_id]
        self.put(replace(job, state="PENDING", reason="BeginTime", restarts=job.restarts + 1, ended_at=None))

    def purge(self, job_id: str) -> None:
        """MinJobAge has passed: only the accounting knows it."""
        del self.jobs[job_id]

    def forget(self, job_id: str, *, rows_too: bool = False) -> None:
        """A controller that died young: the job is gone, and its id will be given out again."""
        del self.jobs[job_id]
        self.next_id = min(self.next_id, int(job_id))
        if rows_too:
            self.rows = [(at, row) for at, row in self.rows if row.job_id != job_id]

    def restart(self, *forgotten: str, rows_too: bool = True) -> None:
        """Killed before it had saved these jobs, and started again."""
        for job_id in forgotten:
            self.forget(job_id, rows_too=rows_too)
        self.boots += 1

    def living(self, mark: str) -> list[Observation]:
        return [job for job in self.jobs.values() if job.mark == mark and job.state not in ENDED]

    # ---------------------------------------------------------------------------------------- the protocol

    async def submit(self, user: UnixUser, submission: Submission) -> SubmitOutcome:
        manner = self.manners.popleft() if self.manners else PROMPT
        if self.down and manner is PROMPT:
            manner = UNAVAILABLE
        with contextlib.suppress(WorkloadManagerError):
            await self.recent_boot_time.get()
        boot_time = self.recent_boot_time.last or ""
        sbatch = Sbatch(user, submission, manner, self.clock.elapsed)
        self.processes.append(sbatch)
        self.tick()
        if manner.ends_s is None:
            await asyncio.get_running_loop().create_future()
        elif manner.ends_s:
            await self.clock.sleep(manner.ends_s)
        self.tick()
        if manner.answer is not None:
            return manner.answer
        if not sbatch.job_id:
            return SubmitUnknown("sbatch: error: Socket timed out")
        self.dependencies[sbatch.job_id] = [*submission.dependencies]
        stdout = f"/home/{user.name}/slurm-{sbatch.job_id}.out"
        return SubmitAccepted(sbatch.job_id, stdout=stdout, stderr=stdout, boot_time=boot_time)

    async def check(self, user: UnixUser, submission: Submission) -> Check:
        return Check(valid=True, detail=f"{user.name} {submission.working_directory}")

    async def expected_start(self, handle: JobHandle) -> ExpectedStart | None:
        self._reachable()
        self.starts_asked.append(handle.job_id)
        job = self.jobs.get(handle.job_id)
        if job is None or job.mark != handle.mark or job.state != "PENDING":
            return None
        return ExpectedStart(reason=job.reason, starts_at=self.expected_start_at)

    async def act(
        self, handle: JobHandle, act: JobAction, *, signal: str | None = None, run: int | None = None
    ) -> ActionResult:
        del run
        self._reachable()
        self.tick()
        job = self.jobs.get(handle.job_id)
        if job is None or job.mark != handle.mark or job.uid != handle.user.uid:
            return ActionResult(done=False, gone=True)
        if self.refuse_acts:
            return ActionResult(done=False, detail=self.refuse_acts)
        self.acts.append((act, handle.job_id))
        if job.state in ENDED:
            return ActionResult(done=False, detail="Job/step already completing or completed")
        if act is JobAction.CANCEL:
            self.put(replace(job, state="CANCELLED", cancelled_by=job.uid, ended_at=self.clock.now()))
        elif act is JobAction.RELEASE:
            self.put(replace(job, reason="Priority"))
        elif act is JobAction.HOLD:
            self.put(replace(job, reason="JobHeldUser"))
        elif act is JobAction.REQUEUE:
            self.requeue(job.job_id)
        if self.acts_take_s:
            await self.clock.sleep(self.acts_take_s)
        return ActionResult(done=True, detail=signal or "")

    async def depend(self, handle: JobHandle, dependencies: Collection[str]) -> ActionResult:
        self._reachable()
        self.dependencies[handle.job_id] = [*dependencies]
        return ActionResult(done=True)

    async def boot_time(self) -> str:
        self._reachable()
        return f"boot {self.boots}"

    def expire_boot_time(self) -> None:
        self.recent_boot_time.expire()

    async def find_outputs(self, user: UnixUser, outputs: Collection[JobOutput]) -> Mapping[JobOutput, bool]:
        self.outputs_asked.append((user.name, len(outputs)))
        if user.uid in self.hanging_homes:
            await asyncio.get_running_loop().create_future()
        if self.outputs_unknown:
            raise WorkloadManagerError("the agent does not answer")
        found = {output: output.path in self.outputs for output in outputs}
        return {output: exists for output, exists in found.items() if exists or self.outputs_shared}

    async def tidy(self, user: UnixUser, mark: str, working_directory: str) -> None:  # noqa: ARG002
        self._reachable()
        self.tidied.append(mark)

    async def report(self, user: UnixUser, mark: str, _: str, since: ReportPosition | None) -> ReportPiece:
        self.reports_read.append(mark)
        if user.uid in self.hanging_homes:
            await asyncio.get_running_loop().create_future()
        position = ReportPosition(1, 1, hash(self.reports.get(mark, b"")))
        return ReportPiece(b"" if position == since else self.reports.get(mark, b""), position)

    async def poll(
        self,
        *,
        users: Collection[UnixUser] | None = None,
        wanted: Callable[[str, str], bool] | None = None,
    ) -> QueueSnapshot:
        self.polls.append(self.clock.elapsed)
        if self.poll_hangs:
            await asyncio.get_running_loop().create_future()
        boot_time = await self.recent_boot_time.get()
        self._reachable()
        self.tick()
        shown = tuple(
            job if job.cancelled_by is None else replace(job, cancelled_by=None)  # only sacct shows it
            for job in self.jobs.values()
            if job.uid not in self.hidden_uids and (wanted is None or wanted(job.job_id, job.mark))
        )
        whole = frozenset(user.uid for user in users or ()) - self.hidden_uids
        return QueueSnapshot(
            at=self.clock.now(),
            took_s=0.01,
            jobs=shown,
            complete=not self.hidden_uids,
            whole=whole,
            boot_time=boot_time,
        )

    async def probe(self, job_ids: Collection[str]) -> int | None:
        if not self.can_glance:
            return None
        self.probes.append(self.clock.elapsed)
        self._reachable()
        self.tick()
        return hash(frozenset((job.job_id, job.state) for job in self.jobs.values() if job.job_id in job_ids))

    async def find_live(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> FoundJobs:
        self._reachable()
        self.tick()
        jobs = tuple(job for job in self.jobs.values() if job.job_id in job_ids)
        whole = frozenset(user.uid for user in users or ()) - self.unfound_uids
        return FoundJobs(jobs, complete=not self.unfound_uids, whole=whole)

    async def history(
        self, job_ids: Collection[str], *, users: Collection[UnixUser] | None = None
    ) -> AccountingSnapshot:
        self.history_asked.append([*job_ids])
        history = self._history(lambda row: row.job_id in job_ids)
        whole = frozenset(user.uid for user in users or ()) - self.untold_uids
        return replace(history, complete=history.complete and not self.untold_uids, whole=whole)

    async def history_of(self, user: UnixUser, *, since: datetime) -> AccountingSnapshot:  # noqa: ARG002
        return self._history(lambda row: row.uid == user.uid)

    def _history(self, wanted: object) -> AccountingSnapshot:
        if self.accounting_down:
            raise WorkloadManagerError("sacct: error: Connection refused")
        if not self.accounting:
            return AccountingSnapshot(jobs=(), complete=False, available=False)
        self.tick()
        latest: dict[tuple[str, datetime | None, int], Observation] = {}
        for at, row in self.rows:
            if at <= self.clock.elapsed and wanted(row):  # type: ignore[operator]
                latest[row.job_id, row.submitted_at, row.restarts] = row
        return AccountingSnapshot(jobs=tuple(latest.values()), complete=True)

    async def usage(self, user: UnixUser, jobs: Collection[JobHandle]) -> tuple[StepUsage, ...]:
        self._reachable()
        job_ids = [job.job_id for job in jobs]
        self.usage_asked.append(job_ids)
        own = {job.job_id for job in self.jobs.values() if job.uid == user.uid and job.job_id in job_ids}
        own |= {task.job_id for job_id in own for task in self.jobs[job_id].tasks}
        return tuple(step for step in self.used.values() if step.job_id in own)

    async def past_usage(self, user: UnixUser, job_ids: Collection[str]) -> tuple[PastUsage, ...] | None:
        self.past_asked.append((user.name, [*job_ids]))
        await self.clock.sleep(self.past_s)
        if self.accounting_down:
            raise WorkloadManagerError("sacct: error: Connection refused")
        return tuple(used for used in self.past if used.job_id in job_ids) if self.accounting else None

    async def submitting(self, user: UnixUser, mark: str) -> bool:
        now = self.clock.elapsed
        return any(s.running(now) and s.submission.mark == mark and s.user == user for s in self.processes)

    def appends(self) -> bool:
        return False

    async def cluster(self) -> Cluster:
        self._reachable()
        return Cluster(
            name="hpc1", workload_manager="simulated", version="1", redbox_version="1", accounting=True
        )

    async def partitions(self) -> tuple[Partition, ...]:
        self._reachable()
        return tuple(self.partitions_now)

    async def associations(self, _user: UnixUser) -> Mapping[str, tuple[str, ...]]:
        return {"physics": ("normal",)}

    def _reachable(self) -> None:
        if self.down:
            raise WorkloadManagerError("Unable to contact slurm controller (connect failure)")
