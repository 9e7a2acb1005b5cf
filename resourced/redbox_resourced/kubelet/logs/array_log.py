"""The log of an array for one reader: task by task, as a companion has it, so that no two are mixed.

Before each goes a line of our own, which task it is and how it ended; then comes its stdout, then its stderr.
A follower gets each task when it has ended; another reader all that have begun. A task of which nothing is
shown has its line at the end: its output may come late, and until then it is asked for again, a few at a
time. What comes of a task after others is said to be its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from redbox_api.models import FINAL_PHASES, ArrayTask, Job, Phase
from redbox_resourced.kubelet.logs.lines import LogWriter
from redbox_resourced.kubelet.logs.query import MOST_LINES, LogRequest, Stream
from redbox_resourced.kubelet.logs.streams import JobStreams, StreamCursor

ASKED_AGAIN_AT_ONCE = 3


class ArrayLog:
    """Copies it once."""

    def __init__(self, streams: JobStreams, request: LogRequest, out: LogWriter) -> None:
        self._streams = streams
        self._request = request
        self._out = _TaskOut(out)
        self._tasks: dict[int, _TaskLog] = {}
        self._silent: list[_TaskLog] = []

    async def copy(self, job: Job) -> None:
        """To its end; raises ByteLimitReached at the reader's limit."""
        there = self._new(job)
        if self._request.tail_lines is not None:
            await _begin_at_last(there, min(self._request.tail_lines, MOST_LINES))
        await self._catch_up(there)
        while self._request.follow and job.phase not in FINAL_PHASES:
            job = await self._streams.poll_job()
            await self._catch_up(self._new(job))
        tasks = [self._tasks[index] for index in sorted(self._tasks)]
        for task in tasks:
            await task.finish(follow=self._request.follow)
        for task in tasks:
            await task.say_troubles()

    def _new(self, job: Job) -> list[_TaskLog]:
        """Those that can be shown since the last look."""
        new = [
            _TaskLog(told, self._streams, self._request.streams, self._out)
            for told in shown_tasks(job, follow=self._request.follow)
            if told.index not in self._tasks
        ]
        self._tasks |= {one.told.index: one for one in new}
        return new

    async def _catch_up(self, new: Iterable[_TaskLog]) -> None:
        again, rest = self._silent[:ASKED_AGAIN_AT_ONCE], self._silent[ASKED_AGAIN_AT_ONCE:]
        asked = [*new, *again]
        for task in asked:
            await task.catch_up()
        self._silent = rest + [task for task in asked if not task.is_shown]


class _TaskOut:
    """The reader, as tasks in turn write to it: what one writes never goes on with a line of another."""

    def __init__(self, out: LogWriter) -> None:
        self.out = out
        self._last: StreamCursor | None = None

    async def write(self, data: bytes, reading: StreamCursor) -> None:
        if self._last is not reading:
            await self.out.begin_line()
            self._last = reading
        await self.out.write(data)


class _TaskLog:
    """One task's part."""

    def __init__(
        self, told: ArrayTask, streams: JobStreams, names: tuple[Stream, ...], out: _TaskOut
    ) -> None:
        self.told = told
        self.is_shown = False
        self._speaks = "stderr" in names  # where a companion has its own lines
        self._streams = streams
        self._out = out
        self._readings = [streams.cursor(name, told.index) for name in names]

    async def begin_at_last(self, left: int) -> int:
        """Skip all but the last so many lines, its own one among them; how many it has of these."""
        if not left:
            self.is_shown, self._readings = True, []
            return 0
        lines = 0
        for reading in reversed(self._readings):
            count = await self._streams.count_lines(reading, left - lines)
            reading.start_at_last(count)
            lines += count
        self.is_shown = lines == left  # without its line, for which there is no room
        return lines + (self._speaks and not self.is_shown)

    async def catch_up(self) -> None:
        """Copy what there is now."""
        for reading in self._readings:
            await self._copy(reading)

    async def finish(self, *, follow: bool) -> None:
        """Nothing more is waited for; a follower gets what a file system shows late."""
        was_shown = self.is_shown
        await self._show()
        for reading in self._readings if follow else ():
            reading.follow()
            before = reading.copied
            await self._copy(reading)
            late = reading.copied - before
            if late and was_shown and self._speaks:
                await self._out.out.write_message(
                    f"task {self.told.index}: {late} bytes of {reading.query.stream} came late, "
                    "and stand above this line"
                )

    async def say_troubles(self) -> None:
        for reading in self._readings:
            if reading.problem:
                await self._out.out.write_message(
                    f"{reading.query.stream} cannot be read: task {self.told.index}: {reading.problem}"
                )

    async def _copy(self, reading: StreamCursor) -> None:
        async def write(data: bytes) -> None:
            await self._out.write(data, reading)

        await self._streams.copy(reading, write, self._out.out.timestamps_of, self._show)

    async def _show(self) -> None:
        was_shown, self.is_shown = self.is_shown, True
        if self._speaks and not was_shown:
            await self._out.out.write_message(heading(self.told))


def shown_tasks(job: Job, *, follow: bool) -> list[ArrayTask]:
    """A follower's tasks are those whose output is whole; another reader's all that have begun."""
    over = job.phase in FINAL_PHASES
    shown = [
        task
        for task in job.tasks or ()
        if over or task.phase in FINAL_PHASES or not (follow or task.phase is Phase.PENDING)
    ]
    return sorted(shown, key=lambda task: task.index)


def heading(task: ArrayTask) -> str:
    """Which task it is, and how it ended: in the companion's words."""
    how = f", exit code {task.exit_code}" if task.exit_code else ""
    how = f", signal {task.signal}" if task.signal else how
    return f"task {task.index}: {task.state or task.phase}{how}"


async def _begin_at_last(tasks: list[_TaskLog], lines: int) -> None:
    """The last lines are found from the last task back: those before them are not asked for at all."""
    for task in reversed(tasks):
        lines -= await task.begin_at_last(lines)
