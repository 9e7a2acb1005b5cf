"""Whoever floods red-box waits for itself: the work of others is done in between.

The clock counts one for each look at it: no test depends on how long a step takes.
"""

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from structlog.testing import capture_logs

from redbox.core.turns import Share, ShareKind, TurnQueue, work_for
from redbox.http.metrics import ServerMetrics, TurnsCollector
from redbox.server.fair_loop import FairEventLoop, report_heavy_shares
from tests.redbox.http.harness import Stand, standing

FLOODING = 32
REQUESTS = 10
SERVED_MEANWHILE = 3
"""Of the flood, while one request of another caller is served. By asyncio's own loop it was 55."""


def run(work: Coroutine[Any, Any, None]) -> None:
    ticks = itertools.count(step=0.001)
    with asyncio.Runner(loop_factory=lambda: FairEventLoop(lambda: next(ticks))) as runner:
        runner.run(work)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (one step of the loop at a time)
        await asyncio.sleep(0)


async def repeat(steps: list[str], name: str) -> None:
    while True:
        steps.append(name)
        await asyncio.sleep(0)


def test_one_who_has_waited_is_served_between_two_steps_of_a_flood() -> None:
    async def flood() -> None:
        steps: list[str] = []
        with work_for(Share(ShareKind.CALLER, "alice")):
            flooding = [asyncio.create_task(repeat(steps, "alice")) for _ in range(100)]
        await until(lambda: len(steps) >= 1000)
        steps.clear()
        with work_for(Share(ShareKind.CALLER, "bob")):
            bob = asyncio.create_task(repeat(steps, "bob"))
        await until(lambda: steps.count("bob") >= 10)
        assert steps.count("alice") <= 12
        for task in (*flooding, bob):
            task.cancel()

    run(flood())


def test_red_box_itself_waits_for_no_caller() -> None:
    async def flood() -> None:
        steps: list[str] = []
        with work_for(Share(ShareKind.CALLER, "alice")):
            flooding = [asyncio.create_task(repeat(steps, "alice")) for _ in range(100)]
        own = asyncio.create_task(repeat(steps, "own"))
        await until(lambda: len(steps) >= 1000)
        assert steps.count("own") >= 300
        for task in (*flooding, own):
            task.cancel()

    run(flood())


def test_a_ready_file_is_read_once_for_each_time_that_it_is_ready() -> None:
    async def flood() -> None:
        steps: list[str] = []
        ours, theirs = socket.socketpair()
        with ours, theirs, work_for(Share(ShareKind.CALLER, "alice")):
            flooding = [asyncio.create_task(repeat(steps, "alice")) for _ in range(50)]
            loop, read = asyncio.get_running_loop(), list[bytes]()
            ours.setblocking(False)  # noqa: FBT003
            loop.add_reader(ours, lambda: read.append(ours.recv(10)))

            def has_read(count: int) -> bool:
                return len(read) >= count

            for count in range(1, 4):
                theirs.send(b"x")
                await until(partial(has_read, count))
            assert read == [b"x"] * 3
            loop.remove_reader(ours)
        for task in flooding:
            task.cancel()

    run(flood())


def test_an_error_of_one_callers_work_ends_nothing_else() -> None:
    async def fail() -> None:
        faults: list[dict[str, Any]] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, fault: faults.append(fault))
        with work_for(Share(ShareKind.CALLER, "alice")):
            loop.call_soon(lambda: 1 / 0)
            assert await asyncio.create_task(asyncio.sleep(0, "done")) == "done"
        assert isinstance(faults[0]["exception"], ZeroDivisionError)

    run(fail())


async def test_the_caller_that_uses_most_of_the_time_is_named_in_the_log() -> None:
    turns = TurnQueue[object]()
    with capture_logs() as logged:
        reporting = asyncio.create_task(report_heavy_shares(turns, every_s=0.001))
        await asyncio.sleep(0)
        turns.recent_s[Share(ShareKind.CALLER, "alice")] = 1.0
        turns.recent_s[Share(ShareKind.CALLER, "bob")] = 0.0001
        await until(lambda: bool(logged))
        reporting.cancel()
    assert [line["name"] for line in logged] == ["alice"]


def test_the_metrics_show_waits_by_kind_and_dropped_connections() -> None:
    turns, alice = TurnQueue[object](), Share(ShareKind.CALLER, "alice")
    turns.add(alice, None, now=1.0)
    turns.take(now=1.5)
    turns.used(alice, 0.25, now=1.75)
    metrics = ServerMetrics()
    metrics.collect_from(TurnsCollector(turns, lambda: 7))
    lines = metrics.exposition().decode().splitlines()
    assert 'redbox_turn_wait_seconds_total{queue="caller"} 0.5' in lines
    assert 'redbox_turn_used_seconds_total{queue="caller"} 0.25' in lines
    assert "redbox_connections_dropped_total 7.0" in lines
    assert not any("alice" in line for line in lines)


# ---------------------------------------------------------------------------------- a whole red-box
@asynccontextmanager
async def flooded(stand: Stand, answered: Counter[str]) -> AsyncIterator[None]:
    """alice asks on many connections, on each as soon as the last request is answered."""

    async def ask() -> None:
        reader, writer = await asyncio.open_unix_connection(stand.socket)
        while True:
            writer.write(b"GET /v1/whoami HTTP/1.1\r\nHost: redbox\r\n\r\n")
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}")
            answered["alice"] += 1

    asking = [asyncio.create_task(ask()) for _ in range(FLOODING)]
    try:
        await until(lambda: answered["alice"] >= 2 * FLOODING or any(task.done() for task in asking))
        yield
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def test_hardly_any_request_of_a_flood_is_answered_while_another_caller_waits() -> None:
    async def ask() -> None:
        answered = Counter[str]()
        async with standing() as stand, stand.by_token("bob") as bob:
            await bob.get("/v1/whoami")
            async with flooded(stand, answered):
                before = answered["alice"]
                for _ in range(REQUESTS):
                    assert (await bob.get("/v1/whoami")).json()["user"] == "bob"
                assert answered["alice"] - before <= REQUESTS * SERVED_MEANWHILE

    run(ask())
