"""A semaphore for each key, as long as it is held or waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)


class KeyedSemaphores(Generic[Key]):
    """Each of the same limit; who uses one keeps a reference to it."""

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
