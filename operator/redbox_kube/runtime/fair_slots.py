"""Slots that many tenants share: a tenant that is slow, or has much to do, holds some of them and no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from weakref import WeakValueDictionary


class FairSlots:
    """So many at once, and so many of one tenant, whose own are taken first: only these queue for all.

    A tenant may have parts with a limit of their own, such as the service accounts of a namespace.
    """

    def __init__(self, at_once: int, *of_a_tenant: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._of_a_tenant = of_a_tenant
        self._by_tenant: WeakValueDictionary[tuple[str, ...], asyncio.Semaphore] = WeakValueDictionary()
        """As long as one of them holds a slot or waits for one."""

    @asynccontextmanager
    async def of(self, *tenant: str) -> AsyncIterator[None]:
        """A slot of this tenant, or of a part of it, which is named after it."""
        own = [self._own(tenant[:depth], limit) for depth, limit in enumerate(self._of_a_tenant, 1)]
        async with AsyncExitStack() as held:
            for semaphore in (*reversed(own), self._all):
                await held.enter_async_context(semaphore)
            yield

    def _own(self, tenant: tuple[str, ...], limit: int) -> asyncio.Semaphore:
        own = self._by_tenant.get(tenant)
        if own is None:
            own = self._by_tenant[tenant] = asyncio.Semaphore(limit)
        return own
