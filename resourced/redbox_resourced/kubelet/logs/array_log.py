"""The log of an array for one reader: task by task, as a companion writes it (`redbox_shared.own_lines`).

A follower gets each task once it has ended; another reader gets all tasks that have begun.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from redbox_api.models import FINAL_PHASES, ArrayTask, Job, Phase
from redbox_resourced.kubelet.logs.lines import LogWriter
from redbox_resourced.kubelet.logs.query import MOST_LINES, LogRequest, Stream
from redbox_resourced.kubelet.logs.streams import JobStreams, StreamCursor
from redbox_shared.own_lines import REREAD_AT_ONCE, late_heading, task_heading, tasks_not_listed


class ArrayLog:
    """Copies the log once."""

    def __init__(self, streams: JobStreams, request: LogRequest, out: LogWriter) -> None:
        self._streams = streams
        self._request = request
        self._out = out
        self._tasks: dict[int, _TaskLog] = {}
        self._silent: list[_TaskLog] = []

    async def copy(self, job: Job) -> None:
        """To its end; raises ByteLimitReached at the reader's limit."""
        first = self._add_tasks(job)
        if self._request.tail_lines is not None:
            left = min(self._request.tail_lines, MOST_LINES)
            for task in reversed(first):  # tasks before the last lines are not requested at all
                left -= await task.begin_at_last(left)
        await self._catch_up(first)
        while self._request.follow and job.phase not in FINAL_PHASES:
            job = await self._streams.poll_job()
            await self._catch_up(self._add_tasks(job))
        tasks = [self._tasks[index] for index in sorted(self._tasks)]
        for task in tasks:
            await task.finish(follow=self._request.follow)
        for task in tasks:
            await task.report_unreadable()
        if job.tasks is None:
            await self._out.write_message(f"stdout cannot be read: {tasks_not_listed(job.working_directory)}")

    def _add_tasks(self, job: Job) -> list[_TaskLog]:
        """The tasks that can be shown and could not be before."""
        new = [
            _TaskLog(task, self._streams, self._request.streams, self._out)
            for task in shown_tasks(job, follow=self._request.follow)
            if task.index not in self._tasks
        ]
        self._tasks |= {log.task.index: log for log in new}
        return new

    async def _catch_up(self, new: Iterable[_TaskLog]) -> None:
        due = [*new, *self._silent[:REREAD_AT_ONCE]]
        for task in due:
            await task.catch_up()
        self._silent = self._silent[REREAD_AT_ONCE:] + [task for task in due if not task.is_shown]


class _TaskLog:
    """One task's part of the log."""

    def __init__(
        self, task: ArrayTask, streams: JobStreams, names: tuple[Stream, ...], out: LogWriter
    ) -> None:
        self.task = task
        self.is_shown = False
        self._heading = task_heading(task.index, task.state or task.phase, task.exit_code, task.signal)
        self._has_own_lines = "stderr" in names  # as a companion's
        self._streams = streams
        self._out = out
        self._readings = [streams.cursor(name, task.index) for name in names]

    async def begin_at_last(self, wanted: int) -> int:
        """Skip all but the last `wanted` lines, the heading among them; returns how many of these it has."""
        if not wanted:
            self._skip_heading()
            self._readings = []
            return 0
        lines = 0
        for reading in reversed(self._readings):
            count = await self._streams.count_lines(reading, wanted - lines)
            reading.start_at_last(count)
            lines += count
        if lines == wanted:  # there is no room for its heading
            self._skip_heading()
        return lines + (self._has_own_lines and not self.is_shown)

    async def catch_up(self) -> None:
        """Copy what is there now."""
        for reading in self._readings:
            await self._copy(reading)

    async def finish(self, *, follow: bool) -> None:
        """Show the heading at the latest now; a follower gets what a file system shows late."""
        if self.is_shown:
            self._heading = late_heading(self.task.index)
        else:
            await self._show_heading()
        for reading in self._readings if follow else ():
            reading.follow()
            await self._copy(reading)

    async def report_unreadable(self) -> None:
        for reading in self._readings:
            if reading.problem:
                await self._out.write_message(
                    f"{reading.query.stream} cannot be read: task {self.task.index}: {reading.problem}"
                )

    async def _copy(self, reading: StreamCursor) -> None:
        write = partial(self._out.write_in_turn, stream=reading)
        await self._streams.copy(reading, write, self._out.timestamps_of, self._show_heading)

    async def _show_heading(self) -> None:
        """The one that is due, if any."""
        heading = self._heading
        self._skip_heading()
        if heading and self._has_own_lines:
            await self._out.write_message(heading)

    def _skip_heading(self) -> None:
        self._heading, self.is_shown = "", True


def shown_tasks(job: Job, *, follow: bool) -> list[ArrayTask]:
    """For a follower the tasks whose output is complete; for another reader all that have begun."""
    is_final = job.phase in FINAL_PHASES
    shown = [
        task
        for task in job.tasks or ()
        if is_final or task.phase in FINAL_PHASES or not (follow or task.phase is Phase.PENDING)
    ]
    return sorted(shown, key=lambda task: task.index)
