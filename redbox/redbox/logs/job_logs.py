"""The logs of a caller's jobs: which file that is, and where the job is in its life."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from redbox.agents.pool import AgentPool
from redbox.core.domain import JobKey, JobRef
from redbox.jobs.errors import NotAcceptable
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.logs.agent_files import AgentFiles
from redbox.logs.interfaces import Forgotten, Written
from redbox.logs.service import Answer, Logs, Query
from redbox.slurm.text.states import JOB_STATES, has_not_begun
from redbox.slurm.views.output_patterns import LogFacts, first_of, resolve
from redbox_api.models import FINAL_PHASES, Phase

UNDER_WAY = frozenset({Phase.RUNNING, Phase.SUSPENDED})


@dataclass
class JobLogReader:
    """Reads logs as the jobs' users."""

    jobs: JobService
    pool: AgentPool
    logs: Logs
    appends: Callable[[], bool] = lambda: False  # where a job does not say
    _files: WeakValueDictionary[int, AgentFiles] = field(default_factory=WeakValueDictionary)

    @asynccontextmanager
    async def read(self, asked: JobRef, stream: str, task: int | None, query: Query) -> AsyncIterator[Answer]:
        """One stream of one job of this caller; of an array, of one task."""
        record = await self.jobs.locate(asked.caller, asked.key, asked.attempt)
        if record.status.array_size and task is None:
            raise NotAcceptable("This job is an array: say with ?task=N which task's log you want.")
        source = RecordSource(self.jobs, record.key, stream, task, self.appends)
        if source.is_merged():
            yield nothing_more()
            return
        name = (str(record.key), record.mark, stream, str(task))
        files = self._files.setdefault(record.user.uid, AgentFiles(self.pool, record.user))
        async with self.logs.read(name, record.user, files, source, query) as answer:
            yield answer


@dataclass(frozen=True, slots=True)
class Standing:
    """Slurm's state and ours, of a job or of one task."""

    state: str
    phase: Phase
    run: int
    began: float | None = None  # when that run did, where it is not the first

    @property
    def is_at_work(self) -> bool:
        """A job that Slurm holds after a requeue is suspended, but its next run has not begun."""
        return self.phase in UNDER_WAY and not has_not_begun(self.state)


@dataclass
class RecordSource:
    """A job's record as the logs see it."""

    jobs: JobService
    key: JobKey
    stream: str
    task: int | None
    appends: Callable[[], bool] = lambda: False  # where the job does not say
    _started_run: int = 0  # the newest one that was seen at work

    def now(self) -> Written:
        record = self.jobs.current(self.key)
        if record is None:
            raise Forgotten(f"The job {self.key.key} is not known any more.")
        now = self._standing(record)
        over = (
            now.phase in FINAL_PHASES and now.state not in JOB_STATES.requeued
        )  # of a task: the array may go on
        run = self._run_in_file(now)
        appends = self.appends() if record.appends is None else record.appends
        return Written(
            path=self._path(record, self.stream),
            run=min(run, 1) if appends else run,
            writing=now.is_at_work,
            final=record.final or over,
            began=None if appends or now.run != run else now.began,
        )

    def _standing(self, record: JobRecord) -> Standing:
        """Of the task whose log it is, where that is known, else of the whole job."""
        status = record.status
        if self.task is None:
            began = status.started_at.timestamp() if status.started_at and record.run > 1 else None
            return Standing(status.state, record.phase, record.run, began)
        task = next((one for one in status.tasks if one.index == self.task), None)
        run = task.restarts + 1 if task else 1
        phase = JOB_STATES.phase_of(task.state) if task and not record.final else None
        return Standing(task.state if task and phase else status.state, phase or record.phase, run)

    def _run_in_file(self, now: Standing) -> int:
        """Slurm counts a requeue when it is asked for: the old run ends under the new one's number."""
        if now.state == "COMPLETING" and self._started_run:
            return self._started_run
        if not now.is_at_work and now.phase not in FINAL_PHASES:
            return max(now.run - 1, self._started_run)
        self._started_run = now.run
        return now.run

    async def changed(self, since: Written) -> Written:
        while (now := self.now()) == since:
            await self.jobs.next_change()
        return now

    def is_merged(self) -> bool:
        """Both streams go to one file: it is read as stdout, and stderr has nothing of its own."""
        record = self.jobs.current(self.key)
        if record is None or self.stream != "stderr" or record.status.stderr is None:
            return False
        return self._path(record, "stderr") == self._path(record, "stdout")

    def _path(self, record: JobRecord, stream: str) -> str | None:
        pattern = record.status.stderr if stream == "stderr" else record.status.stdout
        if pattern is None or self.task is None or record.job_id is None:
            return pattern
        facts = LogFacts(
            job_id=record.job_id,
            user=record.user.name,
            name=record.status.name or record.job_name,
            working_directory=record.status.working_directory or record.working_directory,
            array_job_id=record.job_id,
            array_task=self.task,
            first_node=first_of(record.status.nodes),
        )
        return resolve(pattern, facts)


def nothing_more() -> Answer:
    """There is no byte and there will be none."""

    async def nothing() -> AsyncIterator[bytes]:
        none: tuple[bytes, ...] = ()
        for piece in none:
            yield piece

    return Answer("", 0, nothing(), nothing_more=True)
