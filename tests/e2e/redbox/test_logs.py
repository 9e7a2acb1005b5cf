"""Logs read through red-box from a /home that is as late as NFS and Lustre: whole, in order, and once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import NotAllowed
from redbox_bed import slow_home
from redbox_bed.bed import Bed
from redbox_bed.core.plan import Options
from tests.e2e.harness.redbox_jobs import (
    NOTHING_MORE,
    PATIENCE_S,
    PAUSE_S,
    Reader,
    ended,
    log_of,
    started,
    submit,
    until,
)
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.side_bed import bed_beside

NODE = "n1"
AT_NODE = f"#SBATCH --nodelist={NODE}"
CACHES = ("attr", "entry", "negative")
WRITER = """\
exec python3 - {seed} <<'END'
import random, sys, time
chance = random.Random(int(sys.argv[1]))
for number in range(400):
    sys.stdout.buffer.write(chance.randbytes(chance.choice((1, 7, 80, 300, 4096, 9000))))
    sys.stdout.buffer.flush()
    time.sleep(chance.choice((0, 0, 0, 0.01, 0.1)))
END"""
"""Bytes of all values in small irregular pieces, for some ten seconds."""
WAITER = """\
exec python3 - <<'END'
import os, time
os.write(1, b"begun\\n")
while not os.path.exists("go"):
    time.sleep(0.2)
os.write(1, b"x\\n\\0\\0\\0")
END"""


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """A bed of its own beside the usual one, with a slow /home."""
    with bed_beside("slow-logs", Options(slow_home=True)) as made:
        yield made


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed) as server:
        yield server


@pytest.fixture(autouse=True)
def home(bed: Bed) -> Iterator[Home]:
    """What a test changes in how late the file system is, is undone."""
    home = Home(bed)
    yield home
    home.login("resume")
    home.node("writeback", "500ms")
    for cache in CACHES:
        home.login(cache, "3s")


@dataclass(frozen=True)
class Home:
    """The file system's lateness on the two hosts that matter, and what the writing host itself sees."""

    bed: Bed

    def login(self, *command: str) -> str:
        return slow_home.command(self.bed, self.bed.host("login"), *command)

    def node(self, *command: str) -> str:
        return slow_home.command(self.bed, self.bed.host(NODE), *command)

    def written(self, path: str | None) -> bytes:
        return self.bed.host(NODE).read(str(path))


@dataclass
class Restless(Reader):
    """Breaks off in the middle of answers, and comes back with its generation and offset."""

    chance: random.Random = field(default_factory=lambda: random.Random(1))

    async def more(self) -> bool:
        query: dict[str, Any] = {"follow": "true", "offset": len(self.content)}
        query |= {"generation": self.generation} if self.generation else {}
        enough = len(self.content) + self.chance.randrange(30_000)
        async with self.client.stream("GET", f"/v1/jobs/{self.key}/logs/stdout", query) as answer:
            self._begin(answer.headers["redbox-generation"], int(answer.headers["redbox-offset"]))
            if answer.status == NOTHING_MORE:
                return True
            async for piece in answer.content.iter_any():
                self.content += piece
                if len(self.content) >= enough:
                    break
        return False


async def read_whole(*readers: Reader) -> list[bytes]:
    """Follow to the end, side by side."""
    async with asyncio.timeout(PATIENCE_S):
        return list(await asyncio.gather(*(reader.whole() for reader in readers)))


async def asked(client: RedboxClient, key: str, **query: Any) -> bytes:
    """One answer, whole."""
    async with client.stream("GET", f"/v1/jobs/{key}/logs/stdout", query) as answer:
        return b"".join([piece async for piece in answer.content.iter_any()])


async def eventually(happened: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < give_up_at, "it did not come to that"
        await asyncio.sleep(PAUSE_S)


async def path_of(client: RedboxClient, key: str) -> str:
    """The log's path, as soon as Slurm has said it."""
    job = await until(client, key, lambda job: job.logs.stdout is not None)
    return str(job.logs.stdout)


@asynccontextmanager
async def following(reader: Reader) -> AsyncIterator[asyncio.Task[bytes]]:
    """A reader at work, which is not left behind when the test fails."""
    task = asyncio.create_task(reader.whole())
    try:
        yield task
    finally:
        task.cancel()


# ------------------------------------------------------------------------------------ byte for byte
@pytest.mark.parametrize("writeback", ["0s", "500ms", "4s"])
@pytest.mark.nightly(writeback="4s")
async def test_every_reader_gets_every_byte_once(alice: RedboxClient, home: Home, writeback: str) -> None:
    home.node("writeback", writeback)
    key = await submit(alice, AT_NODE, WRITER.format(seed=7))
    async with following(Reader(alice, key)) as first, following(Restless(alice, key)) as restless:
        await started(alice, key)
        await asyncio.sleep(3)  # the late one comes in the middle
        (late,) = await read_whole(Reader(alice, key))
        written = home.written(await path_of(alice, key))
        assert len(written) > 500_000
        assert late == written
        assert await first == written
        assert await restless == written
    assert await read_whole(Reader(alice, key)) == [written]


async def test_holes_are_not_shown_before_they_are_filled(alice: RedboxClient, home: Home) -> None:
    home.node("writeback", "10h")
    key = await submit(alice, AT_NODE, WAITER)  # of one process: each close(2) of the log would write it back
    login = home.bed.host("login")
    reader = Reader(alice, key)
    async with following(reader) as whole:
        path = await path_of(alice, key)
        await eventually(lambda: "\0" in login.run("cat", path, user="alice", check=False).stdout)
        assert not reader.content
        home.node("flush")
        await reader.until(b"begun\n")
        login.run("touch", f"{path.rpartition('/')[0]}/go", user="alice")
        async with asyncio.timeout(PATIENCE_S):
            assert await whole == b"begun\nx\n\0\0\0"
    assert home.written(path) == b"begun\nx\n\0\0\0"


async def test_a_miss_that_is_cached_long_hides_no_log(alice: RedboxClient, home: Home) -> None:
    key = await submit(alice, AT_NODE, "echo seen", hold=True)
    for cache in CACHES:
        home.login(cache, "20s")
    path = await path_of(alice, key)
    assert home.bed.host("login").run("test", "-e", path, check=False).returncode == 1
    await alice.act_on_job(key, "release")
    assert await log_of(alice, key) == "seen\n"


# ------------------------------------------------------------------------------------ faults
async def test_a_hanging_file_server_holds_up_its_readers_only(
    alice: RedboxClient, bob: RedboxClient, home: Home
) -> None:
    other = await submit(bob, "exec sleep 600")
    own = await submit(alice, "exec sleep 600")
    for client, one in ((bob, other), (alice, own)):
        await started(client, one)
    key = await submit(alice, AT_NODE, WRITER.format(seed=8))  # last: it writes for ten seconds
    await started(alice, key)
    async with following(Reader(alice, key)) as first, following(Restless(alice, key)) as restless:
        home.login("hang")
        began = time.monotonic()
        await eventually(lambda: "waiting=0" not in home.login("status"))
        for client, one in ((bob, other), (alice, own)):
            await client.cancel_job(one)
            assert (await ended(client, one)).phase == "Cancelled"
        await asyncio.sleep(max(0.0, 25 - (time.monotonic() - began)))  # beyond the deadline of a read
        home.login("resume")
        written = await asyncio.gather(first, restless)
    assert set(written) == {home.written(await path_of(alice, key))}


async def test_a_log_that_its_user_may_not_read_is_refused_with_the_systems_words(
    alice: RedboxClient,
) -> None:
    key = await submit(alice, AT_NODE, "chmod 000 /proc/self/fd/1", "echo hidden")
    await ended(alice, key)
    with pytest.raises(NotAllowed, match="Permission denied, as the user of the job"):
        await log_of(alice, key)


async def test_a_file_that_never_appears_is_an_empty_log(alice: RedboxClient) -> None:
    key = await submit(alice, AT_NODE, 'rm "$(readlink /proc/self/fd/1)"')
    await ended(alice, key)
    assert await log_of(alice, key) == ""
    held = await submit(alice, "echo never", hold=True)
    await alice.cancel_job(held)
    await ended(alice, held)
    assert await log_of(alice, held) == ""


async def test_a_server_that_comes_back_goes_on_where_its_readers_stand(
    server: RedboxServer, alice: RedboxClient, home: Home
) -> None:
    key = await submit(alice, AT_NODE, WRITER.format(seed=9))
    reader = Reader(alice, key)
    async with following(reader) as whole:
        await eventually(lambda: len(reader.content) > 100_000)
        generation = reader.generation
        server.kill()
        server.start()
        async with asyncio.timeout(PATIENCE_S):
            assert await whole == home.written(await path_of(alice, key))
    assert reader.generation == generation


async def test_a_second_run_is_a_generation_of_its_own(alice: RedboxClient, home: Home) -> None:
    key = await submit(
        alice,
        AT_NODE,
        "#SBATCH --requeue",
        "echo run $SLURM_RESTART_COUNT",
        "[ $SLURM_RESTART_COUNT ] || sleep 600",
    )
    reader = Reader(alice, key)
    async with following(reader) as whole:
        await reader.until(b"run\n")
        first = reader.generation
        await alice.act_on_job(key, "requeue")
        waiting = await until(alice, key, lambda job: job.reason == "BeginTime")
        login = home.bed.host("login")
        login.run("scontrol", "update", f"JobId={waiting.job_id}", "StartTime=now", user="alice")
        async with asyncio.timeout(PATIENCE_S):
            assert await whole == b"run 1\n" == home.written(await path_of(alice, key))
    assert reader.generation != first


# ------------------------------------------------------------------------------------ which bytes
async def test_the_ends_of_a_log(alice: RedboxClient) -> None:
    key = await submit(alice, AT_NODE, "seq 100000")
    await log_of(alice, key)
    assert await asked(alice, key, tailLines=2) == b"99999\n100000\n"
    assert await asked(alice, key, tail=4) == b"000\n"
    assert await asked(alice, key, offset=2, limit=4) == b"2\n3\n"
    assert await asked(alice, key, tailLines=100001) == "".join(f"{n}\n" for n in range(1, 100001)).encode()


async def test_merged_streams_are_one_log(alice: RedboxClient) -> None:
    merged = await submit(alice, AT_NODE, "#SBATCH --output=both --error=both", "echo out", "echo err >&2")
    assert await log_of(alice, merged) == "out\nerr\n"
    assert await log_of(alice, merged, "stderr") == ""
    apart = await submit(alice, AT_NODE, "echo out", "echo err >&2")
    assert [await log_of(alice, apart, stream) for stream in ("stdout", "stderr")] == ["out\n", "err\n"]


@pytest.mark.parametrize("output", ["slurm-%A_%a.out", "own-%j-%N.out"])
async def test_each_task_of_an_array_has_its_log(alice: RedboxClient, output: str) -> None:
    lines = f"#SBATCH --output={output}", "echo task $SLURM_ARRAY_TASK_ID"
    key = await submit(alice, *lines, array="0-2")
    logs = [await log_of(alice, key, task=task) for task in range(3)]
    assert logs == ["task 0\n", "task 1\n", "task 2\n"]
