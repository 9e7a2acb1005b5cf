"""A tenant that takes its slots and keeps them leaves the others theirs."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from redbox_shared.keyed_semaphores import FairSlots


async def test_one_tenant_does_not_hold_all_slots() -> None:
    slots = FairSlots(3, 2)
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(slots.of("mallory"))
        third = asyncio.create_task(held.enter_async_context(slots.of("mallory")))
        async with asyncio.timeout(60), slots.of("alice"):
            assert not third.done()
        third.cancel()
        await asyncio.wait({third})


async def test_a_part_of_a_tenant_leaves_the_others_theirs() -> None:
    slots = FairSlots(4, 3, 2)
    async with AsyncExitStack() as held:
        for _ in range(2):
            await held.enter_async_context(slots.of("physics", "mallory"))
        third = asyncio.create_task(held.enter_async_context(slots.of("physics", "mallory")))
        async with asyncio.timeout(60), slots.of("physics", "alice"):
            other = asyncio.create_task(held.enter_async_context(slots.of("physics", "bob")))
            async with slots.of("chemistry", "mallory"):
                assert not third.done()
                assert not other.done()
        for waiting in (third, other):
            waiting.cancel()
            await asyncio.wait({waiting})


async def test_together_they_hold_no_more_than_there_are() -> None:
    slots = FairSlots(1, 2)
    entered = asyncio.Event()

    async def enter() -> None:
        async with slots.of("bob"):
            entered.set()

    async with slots.of("alice"):
        waiting = asyncio.create_task(enter())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not entered.is_set()
    await waiting
    assert entered.is_set()
