"""Many things at the API server, some at a time."""

from __future__ import annotations

import asyncio

from redbox_kube.api.objects import ApiUnreachable
from redbox_kube.install.parallel import AT_ONCE, failures_of


async def test_so_many_are_done_at_a_time_and_no_more() -> None:
    busy, most, done = 0, 0, list[int]()
    full = asyncio.Event()

    async def act(number: int) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        if most == AT_ONCE:
            full.set()
        await full.wait()
        busy -= 1
        done.append(number)

    async with asyncio.timeout(60):
        assert await failures_of(range(100), act, str) == []
    assert most == AT_ONCE
    assert sorted(done) == list(range(100))


async def test_one_that_fails_is_told_and_keeps_no_other_from_being_done() -> None:
    done = list[int]()

    async def act(number: int) -> None:
        if number % 2:
            raise ApiUnreachable("no answer")
        done.append(number)

    failed = await failures_of(range(40), act, "job {}".format)
    assert sorted(done) == list(range(0, 40, 2))
    assert sorted(failed) == sorted(f"job {number}: no answer" for number in range(1, 40, 2))
