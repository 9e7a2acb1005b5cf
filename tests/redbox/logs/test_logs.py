"""What a reader of a job's log gets, from real files."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.logs.interfaces import LogFileUnreadable
from redbox.logs.service import LogReadRequest, newline_from_end
from tests.redbox.logs.fakes import Life
from tests.redbox.logs.harness import FOLLOW, LINES, Reader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slurm-7.out"


@pytest.mark.parametrize("network", [False, True])
async def test_all_bytes_from_the_first_to_the_last(path: Path, *, network: bool) -> None:
    reader = Reader(path, network=network)
    following = asyncio.create_task(reader.follows_to_the_end())
    written = b""
    with path.open("wb", buffering=0) as file:
        for number in range(200):
            piece = os.urandom(number * 37)
            file.write(piece)
            written += piece
            await asyncio.sleep(0)
    reader.life.ends()
    assert await following == written


async def test_a_reader_who_comes_later_reads_from_the_first_byte(path: Path) -> None:
    path.write_bytes(LINES * 500)
    reader = Reader(path)
    reader.life.ends()
    assert await reader.follows_to_the_end() == LINES * 500


async def test_nobody_looks_at_the_file_of_a_job_that_waits(path: Path) -> None:
    reader = Reader(path, writing=False)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(reader.follows_to_the_end())
        for _ in range(50):
            await asyncio.sleep(0)
        assert reader.disk.reads == 0
        path.write_bytes(b"begun\n")
        reader.life.starts()
        reader.life.ends()
    assert following.result() == b"begun\n"


async def test_many_readers_share_one_look(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    followers = [asyncio.create_task(reader.follows_to_the_end()) for _ in range(100)]
    await asyncio.sleep(0.05)
    before = reader.disk.reads
    with path.open("ab") as file:
        file.write(b"more\n")
    reader.life.ends()
    assert all(read == LINES + b"more\n" for read in await asyncio.gather(*followers))
    assert reader.disk.reads - before < 50


async def test_a_requeued_run_that_truncates_is_read_from_its_first_byte(path: Path) -> None:
    path.write_bytes(b"first run\n")
    reader = Reader(path, silent_s=0.3)
    answer, first = await reader.reads(FOLLOW)
    reader.life.waits()
    path.write_bytes(b"second run, longer\n")
    reader.life.starts(run=2)
    reader.life.ends()
    again, second = await reader.reads(
        LogReadRequest(generation=answer.generation, offset=len(first), follow=True)
    )
    assert (first, second) == (b"first run\n", b"second run, longer\n")
    assert again.generation != answer.generation
    assert again.offset == 0


async def test_a_file_cut_and_grown_past_the_reader_is_noticed_by_its_last_bytes(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == LINES
        path.write_bytes(b"x" * (len(LINES) + 100))
        assert [piece async for piece in answer.pieces] == []
        reader.life.ends()
        again, read = await reader.reads(
            LogReadRequest(generation=answer.generation, offset=len(LINES), follow=True)
        )
    assert again.offset == 0
    assert read == b"x" * (len(LINES) + 100)


async def test_the_only_reader_of_a_file_that_was_cut_and_grew_past_it_begins_anew(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == LINES
        path.write_bytes(b"x" * (len(LINES) + 100))
        assert [piece async for piece in answer.pieces] == []
    reader.life.ends()
    again, read = await reader.reads(
        LogReadRequest(generation=answer.generation, offset=len(LINES), follow=True)
    )
    assert (again.offset, read) == (0, b"x" * (len(LINES) + 100))


async def test_a_cut_between_two_answers_is_noticed_by_the_last_bytes(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path, silent_s=0.3)
    answer, _ = await reader.reads(FOLLOW)
    path.write_bytes(b"x" * (len(LINES) + 100))
    reader.life.ends()
    again, read = await reader.reads(
        LogReadRequest(generation=answer.generation, offset=len(LINES), follow=True)
    )
    assert (again.offset, read) == (0, b"x" * (len(LINES) + 100))


async def test_a_log_that_was_read_to_its_end_and_grew_is_read_on(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    reader.life.ends()
    assert await reader.follows_to_the_end() == LINES
    path.write_bytes(LINES + b"more\n")
    assert await reader.follows_to_the_end() == LINES + b"more\n"


async def test_so_many_files_are_remembered_and_no_more(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redbox.logs.service.MAX_RESTING", 3)
    reader = Reader(path)
    for number in range(10):
        reader.path = tmp_path / str(number)
        reader.path.write_bytes(LINES)
        reader.life = Life(reader.path)
        await reader.reads(LogReadRequest())
    assert [name for (name,) in reader.logs._resting] == [str(tmp_path / str(number)) for number in (7, 8, 9)]
    assert not reader.logs._tails


async def test_a_shorter_file_of_the_same_name_is_noticed_after_a_restart(path: Path) -> None:
    path.write_bytes(LINES)
    answer, _ = await Reader(path).reads(LogReadRequest())
    path.write_bytes(b"short\n")
    restarted = Reader(path)
    restarted.life.ends()
    again, read = await restarted.reads(
        LogReadRequest(generation=answer.generation, offset=len(LINES), follow=True)
    )
    assert (again.offset, read) == (0, b"short\n")


async def test_a_reader_goes_on_where_it_stood_after_a_restart(path: Path) -> None:
    path.write_bytes(LINES)
    answer, _ = await Reader(path).reads(LogReadRequest())
    restarted = Reader(path)
    restarted.life.ends()
    again, read = await restarted.reads(LogReadRequest(generation=answer.generation, offset=100, follow=True))
    assert (again.generation, again.offset, read) == (answer.generation, 100, LINES[100:])


async def test_nul_bytes_at_the_end_wait_for_the_bytes_that_fill_them(path: Path) -> None:
    path.write_bytes(b"seen\n" + b"\0" * 100)
    reader = Reader(path, network=True)
    async with reader.asks(FOLLOW) as answer:
        assert await anext(answer.pieces) == b"seen\n"
        with path.open("r+b") as file:
            file.seek(5)
            file.write(b"a" * 100)
        assert await anext(answer.pieces) == b"a" * 100


@pytest.mark.parametrize("network", [False, True])
async def test_nul_bytes_that_the_job_really_wrote_arrive_when_it_is_final(
    path: Path, *, network: bool
) -> None:
    path.write_bytes(b"\0\0binary\0\0")
    reader = Reader(path, network=network)
    reader.life.ends()
    assert await reader.follows_to_the_end() == b"\0\0binary\0\0"


async def test_sparse_files_keep_their_holes(path: Path) -> None:
    with path.open("wb") as file:
        file.seek(3_000_000)
        file.write(b"end")
    reader = Reader(path)
    reader.life.ends()
    assert await reader.follows_to_the_end() == b"\0" * 3_000_000 + b"end"


async def test_a_file_that_never_appears_is_a_log_without_bytes(path: Path) -> None:
    reader = Reader(path)
    reader.life.ends()
    assert await reader.follows_to_the_end() == b""


async def test_bytes_that_show_late_after_the_end_are_read(path: Path) -> None:
    path.write_bytes(b"early\n")
    stands_still = True
    reader = Reader(path, network=True, clock=lambda: 0.0 if stands_still else time.monotonic())
    following = asyncio.create_task(reader.follows_to_the_end())
    await reader.looked()
    reader.life.ends()
    await reader.looked()
    path.write_bytes(b"early\nlate\n")
    await reader.looked()
    stands_still = False
    assert await following == b"early\nlate\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(0, b""), (1, b"line 999\n"), (3, b"line 997\nline 998\nline 999\n"), (5000, LINES)],
)
async def test_the_last_lines(path: Path, lines: int, expected: bytes) -> None:
    path.write_bytes(LINES)
    _, read = await Reader(path).reads(LogReadRequest(tail_lines=lines))
    assert read == expected


@pytest.mark.parametrize("lines", [0, 2, 10])
@pytest.mark.parametrize("before", [None, b"", LINES[:28]], ids=["absent", "empty", "four lines"])
async def test_who_follows_the_last_lines_misses_nothing_that_comes_after(
    path: Path, before: bytes | None, lines: int
) -> None:
    """A traceback comes all at once, into a stream that was silent until then."""
    if before is not None:
        path.write_bytes(before)
    reader = Reader(path)
    following = asyncio.create_task(reader.reads(LogReadRequest(tail_lines=lines, follow=True)))
    while reader.disk.reads < 3:  # noqa: ASYNC110 (what is waited for sets no event)
        await asyncio.sleep(0.001)
    new = LINES[-9 * 21 :]
    with path.open("ab") as file:
        file.write(new)
    reader.life.ends()
    _, read = await following
    shown = (before or b"").splitlines(keepends=True)
    assert read == b"".join(shown[len(shown) - min(lines, len(shown)) :]) + new


async def test_the_last_lines_of_a_file_of_many_blocks_without_a_last_newline(path: Path) -> None:
    path.write_bytes(b"a" * 1_100_000 + b"\n" + b"b" * 2_500_000 + b"\n" + b"c" * 10)
    _, read = await Reader(path).reads(LogReadRequest(tail_lines=2))
    assert read == b"b" * 2_500_000 + b"\n" + b"c" * 10


@given(st.binary(max_size=40).map(lambda block: block.replace(b"0", b"\n")), st.integers(1, 40))
def test_the_newline_of_which_so_many_are_left_is_found_by_counts(block: bytes, number: int) -> None:
    newlines = [position for position, byte in enumerate(block) if byte == ord("\n")]
    if number <= len(newlines):
        assert newline_from_end(block, number) == newlines[-number]


async def test_the_last_million_of_many_empty_lines(path: Path) -> None:
    path.write_bytes(b"\n" * 1_200_000)
    reader = Reader(path)
    async with reader.asks(LogReadRequest(tail_lines=1_000_000)) as answer:
        assert answer.offset == 200_000


async def test_looking_for_lines_where_there_are_none_reads_each_piece_once(path: Path) -> None:
    path.write_bytes(b"x" * (16 << 20))
    reader = Reader(path)
    async with reader.asks(LogReadRequest(tail_lines=1)) as answer:
        assert answer.offset == 0
    assert reader.disk.reads < 2 * 16  # of 1 MiB


async def test_lines_are_looked_for_in_the_last_bytes_only(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 1 << 30)
    with path.open("ab") as log:
        log.write(b"x")
    reader = Reader(path)
    async with reader.asks(LogReadRequest(tail_lines=1)) as answer:
        assert answer.offset == path.stat().st_size - (64 << 20)
    assert reader.disk.reads < 2 * 64


async def test_the_last_bytes_and_a_limit(path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    assert (await reader.reads(LogReadRequest(tail_bytes=9)))[1] == b"line 999\n"
    assert (await reader.reads(LogReadRequest(offset=7, limit=6)))[1] == b"line 1"


async def test_a_silent_log_is_answered_with_a_clean_end_to_be_asked_again(path: Path) -> None:
    path.write_bytes(b"")
    answer, read = await Reader(path, silent_s=0.3).reads(FOLLOW)
    assert (answer.complete, read) == (False, b"")


async def test_asking_a_waiting_job_for_what_is_there_is_answered_at_once(path: Path) -> None:
    answer, read = await Reader(path, writing=False).reads(LogReadRequest())
    assert (answer.complete, read) == (False, b"")


async def test_a_reader_keeps_its_place_while_the_job_waits_for_its_next_run(path: Path) -> None:
    path.write_bytes(b"first run\n")
    reader = Reader(path, silent_s=0.3)
    answer, _ = await reader.reads(FOLLOW)
    reader.life.waits()
    again, read = await reader.reads(LogReadRequest(generation=answer.generation, offset=10, follow=True))
    assert (again.generation, again.offset, read) == (answer.generation, 10, b"")


async def test_nonsense_for_a_generation_is_not_repeated(path: Path) -> None:
    answer, _ = await Reader(path, writing=False).reads(LogReadRequest(generation="\u00b4\r\nX: y", offset=3))
    assert (answer.generation, answer.offset) == ("", 0)


async def test_a_fifo_is_no_log(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(LogFileUnreadable):
        await Reader(path).reads(LogReadRequest())


async def test_a_hanging_file_system_holds_up_only_its_own_readers(path: Path, tmp_path: Path) -> None:
    path.write_bytes(LINES)
    reader = Reader(path)
    reader.disk.gate.clear()
    stuck = asyncio.create_task(reader.reads(LogReadRequest()))
    other = tmp_path / "other"
    other.write_bytes(b"fine\n")
    fine = Reader(other)
    fine.logs = reader.logs
    assert (await fine.reads(LogReadRequest()))[1] == b"fine\n"
    assert not stuck.done()
    reader.disk.gate.set()
    assert (await stuck)[1] == LINES
