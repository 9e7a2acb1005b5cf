"""A pod's log for one reader: both streams of its job, read through red-box as the pod's own account.

Nothing is read before somebody asks, and nothing once nobody does. The two streams are put together line by
line, in the order in which they are read; bytes are passed on as they are. What red-box will not give, and an
end that no exit code tells, is said in a line of our own at the end, as a companion does.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from redbox_api.client import RedboxClient
from redbox_api.errors import Refused
from redbox_api.models import FINAL_PHASES, Job
from redbox_resourced.kubelet.logs.array_log import ArrayLog
from redbox_resourced.kubelet.logs.lines import Enough, Lines, Out, Write
from redbox_resourced.kubelet.logs.query import MOST_LINES, LogRequest, leaving_out_the_last, shares
from redbox_resourced.kubelet.logs.streams import Reading, Streams
from redbox_resourced.pods.exit_status import explanation_of


@dataclass(frozen=True)
class PodLog:
    """The log of one attempt of one job, and how to get at it."""

    client: RedboxClient
    key: str
    attempt: int
    job: Job

    async def copy(self, request: LogRequest, write: Write) -> None:
        """Pass on what is asked for, to its end; raises RedboxError where red-box stays away."""
        streams = Streams(self.client, self.key, self.attempt)
        out = Out(write, request.limit_bytes, self.job if request.timestamps else None)
        job = self.job
        while request.follow and not _is_in_slurm(job):
            job = await streams.later()
        try:
            await self._copy(streams, request, out, job)
        except* Enough:
            pass

    async def _copy(self, streams: Streams, request: LogRequest, out: Out, job: Job) -> None:
        sentence = explanation_of(job)
        asked = request if sentence is None else leaving_out_the_last(request)
        if job.array is None:
            await _copy_both(streams, asked, out)
        else:
            await ArrayLog(streams, asked, out).copy(job)
        if request.follow and job.phase not in FINAL_PHASES:
            with suppress(Refused):  # what of the streams it refuses is said by them
                sentence = explanation_of(await streams.now())
        elif request.tail_lines == 0:
            return
        if sentence and "stderr" in request.streams:  # where a companion has its own lines
            await out.say(sentence)


def _is_in_slurm(job: Job) -> bool:
    """Not before Slurm has shown it can one know whether it is an array."""
    return job.state is not None or job.phase in FINAL_PHASES


async def _copy_both(streams: Streams, request: LogRequest, out: Out) -> None:
    """Streams beside each other, each of its own lines."""
    readings = [streams.reading(name) for name in request.streams]
    if request.tail_lines is not None:
        await _begin_at_last(streams, readings, min(request.tail_lines, MOST_LINES))
    async with asyncio.TaskGroup() as group:
        for reading in readings:
            if request.follow:
                reading.follow()
            group.create_task(streams.copy(reading, out, Lines(out.stamped_for)))
    for reading in readings:
        if reading.trouble:
            await out.say(f"{reading.query.stream} cannot be read: {reading.trouble}")


async def _begin_at_last(streams: Streams, readings: list[Reading], wanted: int) -> None:
    """One whose lines are all wanted begins at its first byte: it may have grown since they were counted."""
    lines = [await streams.count_lines(reading, wanted) for reading in readings]
    for reading, counted, part in zip(readings, lines, shares(wanted, tuple(lines)), strict=True):
        if not part == counted < wanted:
            reading.begin_at_last(part)
