"""Slots that many tenants share: a tenant that is slow, or has much to do, holds some of them and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from redbox_shared.keyed_semaphores import KeyedSemaphores


class FairSlots:
    """So many at once, and so many of one tenant, whose own are taken first: only these queue for all.

    A tenant may have parts with a limit of their own, such as the service accounts of a namespace.
    """

    def __init__(self, at_once: int, *of_a_tenant: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._by_tenant = [KeyedSemaphores[tuple[str, ...]](limit) for limit in of_a_tenant]

    @asynccontextmanager
    async def of(self, *tenant: str) -> AsyncIterator[None]:
        """A slot of this tenant, or of a part of it, which is named after it."""
        own = [semaphores.of(tenant[:depth]) for depth, semaphores in enumerate(self._by_tenant, 1)]
        async with AsyncExitStack() as held:
            for semaphore in (*reversed(own), self._all):
                await held.enter_async_context(semaphore)
            yield
