"""A pod's log for one reader: both streams of its job, read through red-box as the pod's own account.

Nothing is read before a reader asks, and nothing after it has gone. The two streams are joined line by line,
in the order in which they are read; bytes are copied unchanged. Streams that red-box refuses, and an end that
no exit code expresses, get a line of our own at the end, as in a companion's log.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from redbox_api.errors import Refused
from redbox_api.models import FINAL_PHASES, Job
from redbox_resourced.kubelet.logs.array_log import ArrayLog
from redbox_resourced.kubelet.logs.lines import ByteLimitReached, LogTimes, LogWriter, Write
from redbox_resourced.kubelet.logs.query import MOST_LINES, LogRequest, tail_shares, without_last_line
from redbox_resourced.kubelet.logs.streams import JobStreams
from redbox_resourced.pods.exit_status import explanation_of


@dataclass(frozen=True)
class PodLog:
    """The log of one attempt of one job, or with `times` of one start of a container."""

    streams: JobStreams
    job: Job
    times: LogTimes | None = None

    async def copy(self, request: LogRequest, write: Write) -> None:
        """Copy the requested part, to its end; raises RedboxError where red-box stays unreachable."""
        times = self.times or LogTimes.of_job(self.job)
        writer = LogWriter(write, request.limit_bytes, times if request.timestamps else None)
        job = self.job
        while request.follow and job.state is None and job.phase not in FINAL_PHASES:
            job = await self.streams.poll_job()  # only Slurm's state shows whether the job is an array
        try:
            await self._copy(request, writer, job)
        except* ByteLimitReached:
            pass

    async def _copy(self, request: LogRequest, writer: LogWriter, job: Job) -> None:
        message = explanation_of(job)
        output = request if message is None else without_last_line(request)
        if job.array is None:
            await _copy_both(self.streams, output, writer)
        else:
            await ArrayLog(self.streams, output, writer).copy(job)
        if request.follow and job.phase not in FINAL_PHASES:
            with suppress(Refused):  # a refusal of the streams has its own line
                message = explanation_of(await self.streams.get_job())
        elif request.tail_lines == 0:
            return
        if message and "stderr" in request.streams:  # where a companion has its own lines
            await writer.write_message(message)


async def _copy_both(streams: JobStreams, request: LogRequest, writer: LogWriter) -> None:
    cursors = [streams.cursor(name) for name in request.streams]
    if request.tail_lines is not None:
        wanted = min(request.tail_lines, MOST_LINES)
        counts = [await streams.count_lines(cursor, wanted) for cursor in cursors]
        for cursor, count, share in zip(cursors, counts, tail_shares(wanted, tuple(counts)), strict=True):
            # A stream of which all lines are wanted starts at its first byte: it may have grown meanwhile.
            if not share == count < wanted:
                cursor.start_at_last(share)
    async with asyncio.TaskGroup() as group:
        for cursor in cursors:
            if request.follow:
                cursor.follow()
            group.create_task(streams.copy(cursor, writer.write, writer.timestamps_of))
    for cursor in cursors:
        if cursor.problem:
            await writer.write_message(f"{cursor.query.stream} cannot be read: {cursor.problem}")
