"""Each key by itself, none waiting for another."""

from __future__ import annotations

import asyncio

import pytest

from redbox_kube.runtime.work_queue import WorkQueue


async def run_until(
    queue: WorkQueue[str], work: object, done: asyncio.Event, workers: int | None = 4
) -> None:
    async with asyncio.timeout(60):
        running = asyncio.create_task(queue.run(work, workers=workers))  # type: ignore[arg-type]
        await done.wait()
        running.cancel()
        await asyncio.wait({running})


@pytest.mark.parametrize("workers", [4, None])
async def test_a_key_is_never_worked_on_twice_at_once_and_a_change_meanwhile_is_not_lost(
    workers: int | None,
) -> None:
    queue: WorkQueue[str] = WorkQueue()
    at_work, most, times, done = 0, 0, 0, asyncio.Event()

    async def work(key: str) -> None:
        nonlocal at_work, most, times
        at_work, times = at_work + 1, times + 1
        most = max(most, at_work)
        if times == 1:
            queue.add(key)
            queue.add(key)
        await asyncio.sleep(0)
        at_work -= 1
        if times == 2:
            done.set()

    queue.add("one")
    queue.add("one")
    await run_until(queue, work, done, workers)
    assert (most, times) == (1, 2)


async def test_one_that_hangs_holds_up_nobody_else() -> None:
    queue: WorkQueue[str] = WorkQueue()
    done = asyncio.Event()

    async def work(key: str) -> None:
        if key == "hangs":
            await asyncio.Event().wait()
        done.set()

    queue.add("hangs")
    queue.add("other")
    await run_until(queue, work, done)


async def test_with_a_task_for_each_key_any_number_may_hang() -> None:
    queue: WorkQueue[str] = WorkQueue()
    done = asyncio.Event()

    async def work(key: str) -> None:
        if key != "last":
            await asyncio.Event().wait()
        done.set()

    for number in range(100):
        queue.add(f"hangs-{number}")
    queue.add("last")
    assert queue.unfinished
    await run_until(queue, work, done, workers=None)


async def test_of_two_times_the_earlier_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    done = asyncio.Event()

    async def work(_: str) -> None:
        done.set()

    queue.add_later("one", 0.01)
    queue.add_later("one", 3600)
    await run_until(queue, work, done)


async def test_what_is_forgotten_does_not_come_back() -> None:
    queue: WorkQueue[str] = WorkQueue()
    shown, done = [], asyncio.Event()

    async def work(key: str) -> None:
        shown.append(key)
        if key == "last":
            done.set()

    queue.add_later("forgotten", 0.01)
    queue.forget("forgotten")
    queue.add_later("last", 0.05)
    await run_until(queue, work, done)
    assert shown == ["last"]
