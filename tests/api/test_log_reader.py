"""A log read to its end equals the file, whatever the line between does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.errors import Busy, NoSuchJob, RedboxError, Unreachable
from redbox_api.log_reader import BoundedRetry, follow_log
from redbox_api.models import Problem
from redbox_shared.backoff import Backoff
from tests.redbox.http.harness import Stand

LINES = b"".join(b"line %d\n" % number for number in range(20_000))


class Line:
    """A line to red-box that is cut after so many bytes of each connection's answers."""

    def __init__(self, target: Path, lasts: int) -> None:
        self.target = target
        self.lasts = lasts
        self.cuts = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(str(self.target))
        asking = asyncio.create_task(self._copy(reader, far_writer))
        left = self.lasts
        while left and (piece := await far_reader.read(min(left, 65536))):
            writer.write(piece)
            await writer.drain()
            left -= len(piece)
        self.cuts += not left
        asking.cancel()
        far_writer.close()
        writer.close()

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)


@asynccontextmanager
async def over(line: Line, path: Path) -> AsyncIterator[RedboxClient]:
    async with (
        await asyncio.start_unix_server(line.carry, str(path)),
        RedboxClient("http://redbox", socket=str(path)) as client,
    ):
        yield client


def quick_retry() -> BoundedRetry:
    return BoundedRetry(backoff=Backoff(0.001, 0.01))


async def read_all(client: RedboxClient, begin: LogQuery | None = None) -> bytes:
    async with asyncio.timeout(60), aclosing(follow_log(client, "k1", begin, quick_retry())) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_a_log_over_a_line_that_breaks_again_and_again_is_the_file(stand: Stand) -> None:
    job_id, _ = await stand.writing("k1", LINES)
    stand.slurm.end(job_id)
    line = Line(stand.socket, lasts=30_000)
    async with over(line, stand.directory / "line") as client:
        assert await read_all(client) == LINES
    assert line.cuts > 5


async def test_what_is_written_while_it_is_read_is_read(stand: Stand, alice: RedboxClient) -> None:
    job_id, path = await stand.writing("k1", b"begin\n")
    read = b""
    async with asyncio.timeout(60), aclosing(follow_log(alice, "k1", None, quick_retry())) as pieces:
        async for piece in pieces:
            read += piece
            if read == b"begin\n":
                with path.open("ab") as log:
                    log.write(LINES)
            if len(read) == len(LINES) + 6:
                stand.slurm.end(job_id)
    assert read == b"begin\n" + LINES


async def test_the_last_lines_and_then_all_that_comes(stand: Stand, alice: RedboxClient) -> None:
    job_id, _ = await stand.writing("k1", LINES)
    stand.slurm.end(job_id)
    assert await read_all(alice, LogQuery(tail_lines=2)) == b"line 19998\nline 19999\n"


async def test_a_job_that_is_not_there_is_not_waited_for(alice: RedboxClient) -> None:
    with pytest.raises(NoSuchJob):
        await read_all(alice)


class Sleeps:
    """Time that passes as it is slept, and is remembered."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def exhaust(retry: BoundedRetry, error: RedboxError) -> None:
    for _ in range(100):
        await retry.wait(error)


async def test_pauses_grow_and_end() -> None:
    time = Sleeps()
    retry = BoundedRetry(
        give_up_s=10, backoff=Backoff(0.2, 5.0, jitter=0.0), clock=lambda: time.now, sleep=time.sleep
    )
    with pytest.raises(Unreachable):
        await exhaust(retry, Unreachable("no route"))
    assert time.slept[:5] == [0.2, 0.4, 0.8, 1.6, 3.2]
    retry.answered()
    await retry.wait(Unreachable("no route"))
    assert time.slept[-1] == 0.2


async def test_a_pause_is_as_long_as_red_box_asks_for() -> None:
    time = Sleeps()
    retry = BoundedRetry(clock=lambda: time.now, sleep=time.sleep)
    problem = Problem(type="a", title="Not now", status=503, detail="later", retry=True)
    await retry.wait(Busy(problem, retry_after=7))
    assert time.slept == [7]
