"""The logs of a caller's jobs: the path of a job's output, and the run and state that it is in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from redbox.agents.pool import AgentPool
from redbox.core.clock import Clock, SystemClock
from redbox.core.domain import JobKey, JobRef
from redbox.core.output_patterns import PatternValues, resolve_pattern
from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.errors import NotAcceptable
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.logs.agent_files import AgentFiles
from redbox.logs.container_logs import ContainerOutputSource, LoggedStart, container_start
from redbox.logs.interfaces import (
    JobRecordDeleted,
    LogFileFailing,
    LogFileUnreadable,
    OutputSource,
    OutputState,
)
from redbox.logs.service import LogReadRequest, LogReadResponse, LogService
from redbox_api.models import FINAL_PHASES, Phase

STARTED = frozenset({Phase.RUNNING, Phase.SUSPENDED})


@dataclass
class JobLogReader:
    """Reads the output of jobs as their users."""

    jobs: JobService
    pool: AgentPool
    logs: LogService
    workload: WorkloadManager
    clock: Clock = field(default_factory=SystemClock)
    _files: WeakValueDictionary[int, AgentFiles] = field(default_factory=WeakValueDictionary)

    @asynccontextmanager
    async def read(
        self,
        ref: JobRef,
        stream: str,
        task: int | None,
        request: LogReadRequest,
        *,
        container: str | None = None,
        restart: int | None = None,
    ) -> AsyncIterator[LogReadResponse]:
        """Read one stream of a caller's job; of an array, of one task; of a pod, of one container's start."""
        record = await self.jobs.locate(ref.caller, ref.key, ref.attempt)
        if container is not None:
            start = container_start(record, container, restart)
            async with self._read_container(record, start, stream, request) as response:
                yield response
            return
        if record.status.array_size and task is None:
            raise NotAcceptable("This job is an array: choose a task's log with ?task=N.")
        output = JobOutputSource(self.jobs, self.workload, record.key, stream, task)
        if output.is_merged():
            yield empty_response()
            return
        name = (str(record.key), record.mark, stream, str(task))
        async with self._read(record, name, output, request) as response:
            yield response

    @asynccontextmanager
    async def _read_container(
        self, record: JobRecord, start: LoggedStart, stream: str, request: LogReadRequest
    ) -> AsyncIterator[LogReadResponse]:
        """Both streams of a container are in one file, which is read as stdout; stderr is empty then."""
        if stream == "stderr":
            yield replace(empty_response(), restart=start.restart)
            return
        output = ContainerOutputSource(self.jobs, record.key, start)
        name = (str(record.key), record.mark, "container", start.container, str(start.restart))
        async with self._read(record, name, output, request) as response:
            yield replace(response, restart=start.restart)

    @asynccontextmanager
    async def _read(
        self, record: JobRecord, name: tuple[str, ...], output: OutputSource, request: LogReadRequest
    ) -> AsyncIterator[LogReadResponse]:
        files = self._files.setdefault(record.user.uid, AgentFiles(self.pool, record.user))
        try:
            async with self.logs.read(name, record.user, files, output, request) as response:
                yield response
        except LogFileFailing as error:
            if record.awaits_output(self.clock.now()):
                raise
            raise LogFileUnreadable(
                f"{error}. The job has ended, and this is not waited for any longer: read the file itself "
                "once that is repaired"
            ) from error


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a job, or of one task, and its run."""

    state: str  # Slurm's
    phase: Phase
    run: int
    began: float | None = None  # start of that run, if it is not the first


@dataclass
class JobOutputSource:
    """The output of a job's record, as `tail` follows it."""

    jobs: JobService
    workload: WorkloadManager
    key: JobKey
    stream: str
    task: int | None
    _started_run: int = 0  # the newest run that was observed as started

    def current(self) -> OutputState:
        record = self.jobs.current(self.key)
        if record is None:
            raise JobRecordDeleted(f"The job {self.key.key} was deleted from the journal.")
        state = self._run_state(record)
        # A task may be final before its array is.
        is_over = state.phase in FINAL_PHASES and state.state not in self.workload.states.requeued
        run = self._run_in_file(state)
        appends = self.workload.appends() if record.appends is None else record.appends
        return OutputState(
            path=self._path(record, self.stream),
            run=min(run, 1) if appends else run,
            writing=self._is_started(state),
            final=record.final or is_over,
            began=None if appends or state.run != run else state.began,
        )

    def _run_state(self, record: JobRecord) -> RunState:
        """Return the state of the task, if it is reported, else of the whole job."""
        reported = record.status
        if self.task is None:
            began = reported.started_at.timestamp() if reported.started_at and record.run > 1 else None
            return RunState(reported.state, record.phase, record.run, began)
        task = record.status.task(self.task)
        run = task.restarts + 1 if task else 1
        phase = self.workload.states.phase_of(task.state) if task and not record.final else None
        return RunState(task.state if task and phase else reported.state, phase or record.phase, run)

    def _is_started(self, state: RunState) -> bool:
        """A job that Slurm holds after a requeue is suspended, but its next run has not started."""
        return state.phase in STARTED and not self.workload.states.has_not_begun(state.state)

    def _run_in_file(self, state: RunState) -> int:
        """Slurm counts a requeue when it is requested: the old run ends under the number of the new one."""
        if state.state == "COMPLETING" and self._started_run:
            return self._started_run
        if not self._is_started(state) and state.phase not in FINAL_PHASES:
            return max(state.run - 1, self._started_run)
        self._started_run = state.run
        return state.run

    async def changed(self, since: OutputState) -> OutputState:
        while (state := self.current()) == since:
            await self.jobs.next_change()
        return state

    def is_merged(self) -> bool:
        """Whether both streams go to one file, which is read as stdout; stderr is empty then."""
        record = self.jobs.current(self.key)
        if record is None or self.stream != "stderr":
            return False
        path = self._path(record, "stderr")  # None of a task whose node is not known yet: it may be any
        return path is not None and path == self._path(record, "stdout")

    def _path(self, record: JobRecord, stream: str) -> str | None:
        pattern = record.status.stderr if stream == "stderr" else record.status.stdout
        if pattern is None or self.task is None or record.job_id is None:
            return pattern
        task = record.status.task(self.task)
        facts = PatternValues(
            job_id=(task.own_id or None) if task else None,
            user=record.user.name,
            name=record.status.name or record.job_name,
            working_directory=record.status.working_directory or record.working_directory,
            array_job_id=record.job_id,
            array_task=self.task,
            first_node=(task.node or None) if task else None,
        )
        return resolve_pattern(pattern, facts)


def empty_response() -> LogReadResponse:
    async def no_pieces() -> AsyncIterator[bytes]:
        none: tuple[bytes, ...] = ()
        for piece in none:
            yield piece

    return LogReadResponse("", 0, no_pieces(), complete=True)
