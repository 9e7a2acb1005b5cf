"""What readers see of a file system that is late, hangs or forgets, and after red-box was restarted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from redbox.agents.protocol.answers import ReadPrecondition
from redbox.logs.generations import Generation, hole_before_page_end
from redbox.logs.interfaces import FileChunk, LogFileNotVisible, LogFileUnavailable
from redbox.logs.service import LogReadRequest
from tests.redbox.logs.fakes import Disk
from tests.redbox.logs.harness import FOLLOW, LINES, Reader

A_GENERATION = Generation(device=0x10, inode=0x20, run=1, cuts=2)


@dataclass
class LateDisk(Disk):
    """The next reads fail, or show a file as short as it was."""

    faults: list[Exception] = field(default_factory=list)
    short_for: int = 0
    short_size: int = 0

    async def read(
        self,
        path: str,
        offset: int,
        limit: int,
        *,
        expect: ReadPrecondition | None = None,
        fresh: bool = False,
    ) -> FileChunk:
        if self.faults:
            raise self.faults.pop(0)
        if self.short_for:
            self.short_for -= 1
            whole = Path(path).read_bytes()
            Path(path).write_bytes(whole[: self.short_size])
            try:
                return await super().read(path, offset, limit, expect=expect, fresh=fresh)
            finally:
                Path(path).write_bytes(whole)
        return await super().read(path, offset, limit, expect=expect, fresh=fresh)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slurm-7.out"


def late_reader(path: Path, clock: Callable[[], float] = time.monotonic, **lateness: object) -> Reader:
    reader = Reader(path, clock=clock)
    reader.disk = LateDisk(network=True, **lateness)  # type: ignore[arg-type]
    return reader


async def test_a_file_that_its_directory_lists_is_waited_for_beyond_the_jobs_end(path: Path) -> None:
    path.write_bytes(LINES)
    reader = late_reader(path, faults=[LogFileNotVisible("listed")] * 20)
    reader.life.ends()
    assert await reader.follows_to_the_end() == LINES


async def test_nul_bytes_are_not_shown_at_once_because_the_job_is_final(path: Path) -> None:
    path.write_bytes(b"seen\n" + b"\0" * 100)
    reader = late_reader(path, clock=lambda: 0.0)
    reader.life.ends()
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == b"seen\n"
        with path.open("r+b") as file:
            file.seek(5)
            file.write(b"a" * 100)
        assert await anext(answer.pieces) == b"a" * 100


async def test_a_follower_outlasts_a_file_system_that_hangs(path: Path) -> None:
    path.write_bytes(b"before\n")
    reader = late_reader(path)
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == b"before\n"
        assert isinstance(reader.disk, LateDisk)
        reader.disk.faults += [LogFileUnavailable("it hangs")] * 3
        path.write_bytes(b"before\nafter\n")
        assert await anext(answer.pieces) == b"after\n"


async def test_who_does_not_follow_is_told_that_nobody_could_look(path: Path) -> None:
    reader = late_reader(path, faults=[LogFileUnavailable("it hangs")])
    with pytest.raises(LogFileUnavailable):
        await reader.reads(LogReadRequest())


async def test_an_older_size_after_a_restart_is_not_taken_for_a_cut(path: Path) -> None:
    path.write_bytes(LINES)
    first, _ = await Reader(path).reads(LogReadRequest())
    restarted = late_reader(path, clock=lambda: restarted.disk.reads / 200, short_for=2, short_size=100)
    restarted.life.ends()
    stand = LogReadRequest(generation=first.generation, offset=len(LINES) - 9, follow=True)
    answer, read = await restarted.reads(stand)
    assert (answer.generation, read) == (first.generation, b"line 999\n")


async def test_an_offset_that_no_reader_can_have_starts_nobody_else_anew(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == LINES
        assert (await reader.reads(LogReadRequest(offset=1 << 40)))[1] == b""
        with path.open("ab") as file:
            file.write(b"more\n")
        assert await anext(answer.pieces) == b"more\n"


async def test_readers_from_before_and_after_a_restart_share_a_file(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    answer, _ = await reader.reads(LogReadRequest())
    cut_before = answer.generation.rpartition("-")[0] + "-3"
    async with reader.asks(FOLLOW) as new:
        assert await anext(new.pieces) == LINES
        reader.life.ends()
        old, read = await reader.reads(LogReadRequest(generation=cut_before, offset=10, follow=True))
        assert (old.generation, read) == (cut_before, LINES[10:])
        assert [piece async for piece in new.pieces] == []


async def test_a_cut_ends_the_generations_of_all_readers(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    answer, _ = await reader.reads(LogReadRequest())
    cut_before = answer.generation.rpartition("-")[0] + "-3"
    stand = LogReadRequest(generation=cut_before, offset=10, follow=True)
    async with reader.asks(FOLLOW) as new, reader.asks(stand) as old:
        assert [await anext(new.pieces), await anext(old.pieces)] == [LINES, LINES[10:]]
        path.write_bytes(b"x" * (len(LINES) + 100))
        assert [piece async for piece in new.pieces] == [piece async for piece in old.pieces] == []
        reader.life.ends()
        again, read = await reader.reads(stand)
    assert again.generation.endswith("-4")
    assert read == b"x" * (len(LINES) + 100)


@pytest.mark.parametrize(
    ("current", "continues"),
    [
        (Generation(0x10, 0x20, 1, 2), True),
        (Generation(0x10, 0x20, 1, 0), True),
        (Generation(0x10, 0x20, 1, 3), False),
        (Generation(0x10, 0x21, 1, 2), False),
        (Generation(0x10, 0x20, 2, 0), False),
    ],
)
def test_a_reader_goes_on_where_no_cut_came_after_its_own(current: Generation, *, continues: bool) -> None:
    assert A_GENERATION.continues_in(current) is continues


async def test_a_silent_file_keeps_no_bytes_in_memory(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == LINES
        waiting = asyncio.ensure_future(anext(answer.pieces))
        reads = reader.disk.reads
        while reader.disk.reads < reads + 3:  # noqa: ASYNC110 (reads have no event)
            await asyncio.sleep(0)
        ((tail, _),) = reader.logs._tails.values()
        assert tail._newest[1] == b""
        waiting.cancel()


@pytest.mark.parametrize(
    ("data", "offset", "hole"),
    [
        (b"a" * 9000, 0, None),
        (b"a" * 4000 + b"\0" * 96 + b"b", 0, 4000),
        (b"a" * 4000 + b"\0" * 95 + b"b", 0, None),
        (b"a" * 4000 + b"\0" * 96, 0, None),
        (b"a" * 10 + b"\0" * 86 + b"b", 4000, 10),
        (b"\0" * 96 + b"b", 8192 - 96, 0),
    ],
)
def test_nuls_to_the_end_of_a_page_are_doubtful_before_other_bytes(
    data: bytes, offset: int, hole: int | None
) -> None:
    assert hole_before_page_end(data, offset) == hole


async def test_a_page_that_was_read_too_early_is_read_again(path: Path) -> None:
    path.write_bytes(b"a" * 4000 + b"\0" * 96 + b"b" * 10)
    reader = late_reader(path)
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == b"a" * 4000
        path.write_bytes(b"a" * 4096 + b"b" * 10)
        assert await anext(answer.pieces) == b"a" * 96 + b"b" * 10


async def test_a_hole_that_stays_is_the_jobs_own(path: Path) -> None:
    content = b"a" * 4000 + b"\0" * 100_000 + b"b" * 10
    path.write_bytes(content)
    reader = late_reader(path)
    reader.life.ends()
    assert await reader.follows_to_the_end() == content
