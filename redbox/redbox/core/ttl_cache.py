"""A value that is fetched at most every few seconds, by one caller at a time.

Concurrent callers share one fetch, and its failure. It is red-box's own work, to the last line: a caller that
waits for the own turn holds up no other. When the workload manager does not answer, `get` raises
and `get_or_stale` returns the last value with the time since when it is stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from redbox.core.clock import Clock, SystemClock
from redbox.core.turns import work_for
from redbox.core.workload_manager import WorkloadManagerError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CachedValue(Generic[T]):
    """A value, and since when it could not be refreshed."""

    value: T
    stale_since: datetime | None = None


class TtlCache(Generic[T]):
    """Caches one value for `ttl_s`, and a failure to fetch it for `failure_ttl_s`."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[T]],
        ttl_s: float,
        *,
        failure_ttl_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self._fetch = fetch
        self._ttl_s = ttl_s
        self._failure_ttl_s = failure_ttl_s
        self._clock = clock or SystemClock()
        self._refreshing: asyncio.Task[None] | None = None
        self._expirations = 0
        self._expires = float("-inf")
        self._cached: tuple[T, datetime] | None = None
        self._failure: WorkloadManagerError | TimeoutError | None = None

    @property
    def last(self) -> T | None:
        """The value of the last successful fetch, however old; None before the first."""
        return self._cached[0] if self._cached else None

    def expire(self) -> None:
        """Fetch at the next call; what a fetch under way brings is not kept."""
        self._expires, self._expirations = float("-inf"), self._expirations + 1

    async def get(self) -> T:
        """The value; raises the failure if it could not be refreshed."""
        cached = await self.get_or_stale()
        if self._failure is not None:
            raise self._failure
        return cached.value

    async def get_or_stale(self) -> CachedValue[T]:
        """The last value, stale if it could not be refreshed; raises the failure if there never was one."""
        if self._refreshing is None and self._clock.monotonic() >= self._expires:
            with work_for(None):
                self._refreshing = asyncio.create_task(self._refresh())
        if self._refreshing is not None:
            await asyncio.shield(self._refreshing)  # others wait for it, too
        if self._cached is None:
            raise self._failure or WorkloadManagerError("no value was fetched")
        value, fetched_at = self._cached
        return CachedValue(value, fetched_at if self._failure else None)

    async def _refresh(self) -> None:
        expirations = self._expirations
        try:
            value = await self._fetch()
        except (WorkloadManagerError, TimeoutError) as failure:
            self._failure = failure
        else:
            self._cached, self._failure = (value, self._clock.now()), None
        finally:
            self._refreshing = None
        if expirations == self._expirations:
            self._expires = self._clock.monotonic() + (self._failure_ttl_s if self._failure else self._ttl_s)
