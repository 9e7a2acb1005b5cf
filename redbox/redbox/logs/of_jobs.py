"""The logs of a caller's jobs: which file that is, and where the job is in its life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from redbox.agents.pool import AgentPool
from redbox.domain import Asked, JobKey
from redbox.jobs.errors import NotAcceptable
from redbox.jobs.phases import TAKEN_BACK, phase_of
from redbox.jobs.records import Record
from redbox.jobs.service import Jobs
from redbox.logs.by_agents import AgentFiles
from redbox.logs.service import Answer, Logs, Query
from redbox.logs.sources import Forgotten, Written
from redbox.slurm.patterns import LogFacts, first_of, resolve
from redbox_api.models import FINAL_PHASES, Phase

UNDER_WAY = frozenset({Phase.RUNNING, Phase.SUSPENDED})


@dataclass
class JobLogReader:
    """Reads logs as the jobs' users."""

    jobs: Jobs
    pool: AgentPool
    logs: Logs
    _files: WeakValueDictionary[int, AgentFiles] = field(default_factory=WeakValueDictionary)

    @asynccontextmanager
    async def read(self, asked: Asked, stream: str, task: int | None, query: Query) -> AsyncIterator[Answer]:
        """One stream of one job of this caller; of an array, of one task."""
        record = await self.jobs.locate(asked.caller, asked.key, asked.attempt)
        if record.seen.array_size and task is None:
            raise NotAcceptable("This job is an array: say with ?task=N which task's log you want.")
        source = RecordSource(self.jobs, record.key, stream, task)
        if source.is_merged():
            yield nothing_more()
            return
        name = (str(record.key), stream, str(task))
        files = self._files.setdefault(record.user.uid, AgentFiles(self.pool, record.user))
        async with self.logs.read(name, record.user, files, source, query) as answer:
            yield answer


@dataclass
class RecordSource:
    """A job's record as the logs see it."""

    jobs: Jobs
    key: JobKey
    stream: str
    task: int | None
    _started_run: int = 0  # the newest one that was seen at work

    def now(self) -> Written:
        record = self.jobs.current(self.key)
        if record is None:
            raise Forgotten(f"The job {self.key.key} is not known any more.")
        state, phase = self._standing(record)
        over = phase in FINAL_PHASES and state not in TAKEN_BACK  # of a task: the array may go on
        return Written(
            path=self._path(record, self.stream),
            run=self._run_in_file(record, state, phase),
            writing=phase in UNDER_WAY,
            final=record.final or over,
        )

    def _standing(self, record: Record) -> tuple[str, Phase]:
        """Slurm's state and ours: of the task whose log it is, where that is known, else of the whole job."""
        if self.task is not None and not record.final:
            for task in record.seen.tasks:
                if task.index == self.task and (phase := phase_of(task.state)):
                    return task.state, phase
        return record.seen.state, record.phase

    def _run_in_file(self, record: Record, state: str, phase: Phase) -> int:
        """Slurm counts a requeue when it is asked for: the old run ends under the new one's number."""
        if state == "COMPLETING" and self._started_run:
            return self._started_run
        if phase not in UNDER_WAY | FINAL_PHASES:
            return max(record.run - 1, self._started_run)
        self._started_run = record.run
        return record.run

    async def changed(self, since: Written) -> Written:
        while (now := self.now()) == since:
            await self.jobs.next_change()
        return now

    def is_merged(self) -> bool:
        """Both streams go to one file: it is read as stdout, and stderr has nothing of its own."""
        record = self.jobs.current(self.key)
        if record is None or self.stream != "stderr" or record.seen.stderr is None:
            return False
        return self._path(record, "stderr") == self._path(record, "stdout")

    def _path(self, record: Record, stream: str) -> str | None:
        pattern = record.seen.stderr if stream == "stderr" else record.seen.stdout
        if pattern is None or self.task is None or record.job_id is None:
            return pattern
        facts = LogFacts(
            job_id=record.job_id,
            user=record.user.name,
            name=record.seen.name or record.job_name,
            working_directory=record.seen.working_directory or record.working_directory,
            array_job_id=record.job_id,
            array_task=self.task,
            first_node=first_of(record.seen.nodes),
        )
        return resolve(pattern, facts)


def nothing_more() -> Answer:
    """There is no byte and there will be none."""

    async def nothing() -> AsyncIterator[bytes]:
        none: tuple[bytes, ...] = ()
        for piece in none:
            yield piece

    return Answer("", 0, nothing(), nothing_more=True)
