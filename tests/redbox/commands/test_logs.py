"""Printing logs."""

from __future__ import annotations

import asyncio

from tests.redbox.commands.conftest import Run
from tests.redbox.http.harness import Stand, until_streams_are

LINES = b"".join(b"line %d\n" % number for number in range(100))


async def test_a_log_is_printed_as_it_is(stand: Stand, redbox: Run) -> None:
    content = bytes(range(256)) * 1000
    await stand.writing("k1", content)
    ended = await redbox("logs", "k1")
    assert (ended.exit_code, ended.stdout_bytes) == (0, content)


async def test_stderr_is_apart(stand: Stand, redbox: Run) -> None:
    _, path = await stand.writing("k1", LINES)
    path.with_suffix(".err").write_bytes(b"oh\n")
    assert (await redbox("logs", "k1", "--stderr")).stdout_bytes == b"oh\n"


async def test_the_last_lines(stand: Stand, redbox: Run) -> None:
    await stand.writing("k1", LINES)
    assert (await redbox("logs", "k1", "-n", "2")).stdout == "line 98\nline 99\n"


async def test_following_ends_with_the_jobs_last_byte(stand: Stand, redbox: Run) -> None:
    job_id, path = await stand.writing("k1", LINES)
    following = asyncio.create_task(redbox("logs", "k1", "-f"))
    await until_streams_are(stand, 1)
    with path.open("ab") as log:
        log.write(b"the last\n")
    stand.slurm.end(job_id)
    async with asyncio.timeout(60):
        ended = await following
    assert (ended.exit_code, ended.stdout_bytes) == (0, LINES + b"the last\n")


async def test_a_log_of_nothing_is_a_sentence(redbox: Run) -> None:
    ended = await redbox("logs", "k1", "-f")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("redbox: There is no such job")
