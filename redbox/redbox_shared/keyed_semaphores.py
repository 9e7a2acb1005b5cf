"""Semaphores by key: one for each of those that compete, and slots that tenants share fairly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)


class KeyedSemaphores(Generic[Key]):
    """A semaphore for each key, as long as it is held or waited for; who uses one keeps a reference to it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_use: WeakValueDictionary[Key, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, key: Key) -> asyncio.Semaphore:
        semaphore = self._in_use.get(key)
        if semaphore is None:
            semaphore = self._in_use[key] = asyncio.Semaphore(self._limit)
        return semaphore

    def __len__(self) -> int:
        """How many are in use."""
        return len(self._in_use)


class FairSlots:
    """So many at once, and so many of one tenant, whose own are taken first: only these queue for all.

    So a tenant that is slow, or has much to do, holds some of them and no more. A tenant may have parts with
    a limit of their own, such as the service accounts of a namespace.
    """

    def __init__(self, at_once: int, *of_a_tenant: int) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._by_tenant = [KeyedSemaphores[tuple[Hashable, ...]](limit) for limit in of_a_tenant]

    @asynccontextmanager
    async def of(self, *tenant: Hashable) -> AsyncIterator[None]:
        """A slot of this tenant, or of a part of it, which is named after it."""
        own = [semaphores.of(tenant[:depth]) for depth, semaphores in enumerate(self._by_tenant, 1)]
        async with AsyncExitStack() as held:
            for semaphore in (*reversed(own), self._all):
                await held.enter_async_context(semaphore)
            yield
