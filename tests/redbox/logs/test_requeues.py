"""What a reader gets of a job that Slurm runs again: each run's bytes once, whenever Slurm says what."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redbox.logs.generations import CLOCK_SKEW_S, Generation, run_of
from redbox.logs.interfaces import LogFileStat, OutputState
from redbox.logs.service import LogReadRequest
from tests.redbox.logs.fakes import Life
from tests.redbox.logs.harness import Reader

FIRST = 1_800_000_000  # seconds since 1970
SECOND = FIRST + 300


class Follower:
    """A companion: it asks from where it stands until the log is complete, at whichever server."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.read = b""
        self._generation: str | None = None
        self._offset = 0

    async def follows(self) -> None:
        while True:
            query = LogReadRequest(generation=self._generation, offset=self._offset, follow=True)
            async with self.reader.asks(query) as answer:
                if answer.complete:
                    return
                self._generation, self._offset = answer.generation or None, answer.offset
                async for piece in answer.pieces:
                    self.read += piece
                    self._offset += len(piece)

    async def has(self, expected: bytes) -> None:
        while self.read != expected:  # noqa: ASYNC110 (pieces have no event)
            await asyncio.sleep(0.001)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """To the end of the log, if nothing fails."""
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            following = group.create_task(self.follows())
            try:
                yield
            except BaseException:
                following.cancel()
                raise

    @asynccontextmanager
    async def until_a_restart(self) -> AsyncIterator[None]:
        """Until red-box is killed: another one knows nothing, and the job's life goes on."""
        following = asyncio.create_task(self.follows())
        async with asyncio.timeout(60):
            yield
        following.cancel()
        await asyncio.wait({following})
        life, self.reader = self.reader.life, Reader(self.reader.path, silent_s=0.3)
        self.reader.life = life


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slurm-7.out"


@pytest.fixture
def follower(path: Path) -> Follower:
    return Follower(Reader(path, silent_s=0.3))


def write(path: Path, data: bytes, at: float) -> None:
    """What a run writes over all that there was, at such a time."""
    path.write_bytes(data)
    os.utime(path, ns=(int(at * 1e9),) * 2)


def requeued(life: Life) -> None:
    life.waits()
    life.starts(run=2, began=SECOND)


async def test_a_run_that_has_not_opened_its_file_is_no_new_log(follower: Follower, path: Path) -> None:
    write(path, b"first\n", FIRST)
    async with follower.at_work():
        await follower.has(b"first\n")
        requeued(follower.reader.life)
        await follower.reader.looked()
        write(path, b"second\n", SECOND)
        await follower.has(b"first\nsecond\n")
        follower.reader.life.ends()
    assert follower.read == b"first\nsecond\n"


async def test_nor_is_it_for_a_red_box_that_never_saw_the_first_run(follower: Follower, path: Path) -> None:
    write(path, b"first\n", FIRST)
    async with follower.until_a_restart():
        await follower.has(b"first\n")
    requeued(follower.reader.life)
    async with follower.at_work():
        await follower.reader.looked()
        write(path, b"second\n", SECOND)
        await follower.has(b"first\nsecond\n")
        follower.reader.life.ends()
    assert follower.read == b"first\nsecond\n"


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_run_that_was_cancelled_while_it_waited_wrote_nothing(
    follower: Follower, path: Path, *, restarted: bool
) -> None:
    write(path, b"first\n", FIRST)
    if restarted:
        async with follower.until_a_restart():
            await follower.has(b"first\n")
    async with follower.at_work():
        await follower.has(b"first\n")
        requeued(follower.reader.life)
        follower.reader.life.ends()
    assert follower.read == b"first\n"


@pytest.mark.parametrize("second", [b"begun\n", b"begun\ndone\n"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_run_that_writes_the_same_bytes_is_read_all_the_same(
    follower: Follower, path: Path, second: bytes, *, restarted: bool
) -> None:
    write(path, b"begun\n", FIRST)
    async with follower.until_a_restart() if restarted else follower.at_work():
        await follower.has(b"begun\n")
        requeued(follower.reader.life)
        write(path, second, SECOND)
        follower.reader.life.ends()
    if restarted:
        await asyncio.wait_for(follower.follows(), 60)
    assert follower.read == b"begun\n" + second


async def test_a_cut_that_is_seen_before_slurm_tells_of_the_run_counts_once(
    follower: Follower, path: Path
) -> None:
    write(path, b"the first run\n", FIRST)
    async with follower.at_work():
        await follower.has(b"the first run\n")
        follower.reader.life.waits()
        write(path, b"second\n", SECOND)
        await follower.has(b"the first run\nsecond\n")
        follower.reader.life.starts(run=2, began=SECOND)
        write(path, b"second\nmore\n", SECOND + 1)
        await follower.has(b"the first run\nsecond\nmore\n")
        follower.reader.life.ends()
    assert follower.read == b"the first run\nsecond\nmore\n"


async def test_what_a_run_wrote_last_is_read_while_the_job_waits_for_the_next(
    follower: Follower, path: Path
) -> None:
    write(path, b"first\n", FIRST)
    async with follower.until_a_restart():
        await follower.has(b"first\n")
    follower.reader.life.waits()
    write(path, b"first\nits last words\n", FIRST + 1)
    async with follower.at_work():
        await follower.has(b"first\nits last words\n")
        requeued(follower.reader.life)
        write(path, b"second\n", SECOND)
        follower.reader.life.ends()
    assert follower.read == b"first\nits last words\nsecond\n"


KNOWN = Generation(device=1, inode=2, run=1)
AT_WORK = OutputState("/home/alice/out", run=2, writing=True, final=False)


def file_of(modified: float, inode: int = 2) -> LogFileStat:
    return LogFileStat(device=1, inode=inode, size=10, modified_ns=int(modified * 1e9), network=False)


@pytest.mark.parametrize(
    ("began", "modified", "old", "run"),
    [
        (SECOND, FIRST, KNOWN, 1),
        (SECOND, FIRST + 9, KNOWN, 1),  # its last bytes show late
        (SECOND, SECOND - CLOCK_SKEW_S / 2, KNOWN, 2),
        (SECOND, SECOND, KNOWN, 2),
        (SECOND, FIRST, None, 1),
        (SECOND, SECOND, None, 2),
        (None, FIRST, KNOWN, 1),
        (None, FIRST + 9, KNOWN, 2),
        (None, FIRST, None, 2),
    ],
)
def test_whose_bytes_are_in_a_file(
    began: float | None, modified: float, old: Generation | None, run: int
) -> None:
    written = OutputState(AT_WORK.path, run=2, writing=True, final=False, began=began)
    assert run_of(file_of(modified), written, old, file_of(FIRST) if old else None, None) == run


def test_another_file_is_judged_by_its_own_time() -> None:
    written = OutputState(AT_WORK.path, run=2, writing=True, final=False, began=SECOND)
    assert run_of(file_of(SECOND, inode=3), written, KNOWN, file_of(FIRST), None) == 2
    assert run_of(file_of(FIRST, inode=3), written, KNOWN, file_of(FIRST), None) == 1
