from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from redbox.core.clock import SystemClock
from redbox.core.ttl_cache import CachedValue, TtlCache
from redbox.core.turns import Share, ShareKind, work_for, working_for
from redbox.core.workload_manager import WorkloadManagerError

START = datetime(2026, 1, 1, tzinfo=UTC)


class Source(SystemClock):
    """Counts fetches, and fails on demand; is the clock as well."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.fetches = 0
        self.failure: Exception | None = None

    async def fetch(self) -> int:
        self.fetches += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.fetches

    def cache(self, failure_ttl_s: float = 0.0) -> TtlCache[int]:
        return TtlCache(self.fetch, 10, failure_ttl_s=failure_ttl_s, clock=self)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.elapsed)

    def monotonic(self) -> float:
        return self.elapsed


async def test_a_value_is_fetched_again_once_it_has_expired() -> None:
    source = Source()
    cache = source.cache()
    assert cache.last is None
    assert [await cache.get(), await cache.get()] == [1, 1]
    source.elapsed = 9.9
    assert await cache.get() == 1
    source.elapsed = 10
    assert await cache.get() == 2
    assert cache.last == 2


async def test_what_has_expired_is_fetched_again_even_if_a_fetch_is_under_way() -> None:
    source = Source()
    cache = source.cache()
    assert await cache.get() == 1
    cache.expire()
    under_way = asyncio.ensure_future(cache.get())
    while source.fetches < 2:  # noqa: ASYNC110 (one step of the loop at a time)
        await asyncio.sleep(0)
    cache.expire()
    assert await under_way == 2
    assert [await cache.get(), await cache.get()] == [3, 3]


async def test_a_crowd_shares_one_fetch() -> None:
    source = Source()
    cache = source.cache()
    assert await asyncio.gather(*(cache.get() for _ in range(50))) == [1] * 50


async def test_a_crowd_shares_one_failure() -> None:
    source = Source()
    source.failure = WorkloadManagerError("away")
    cache = source.cache()
    outcomes = await asyncio.gather(*(cache.get() for _ in range(50)), return_exceptions=True)
    assert outcomes == [source.failure] * 50
    assert source.fetches == 1
    source.failure = None
    assert await cache.get() == 2


async def test_a_fetch_ends_though_the_caller_that_asked_first_has_no_turn() -> None:
    source = Source()
    cache = source.cache()
    asking = cache.get()
    step = asking.send(None)  # alice's only step: the next would be in her turn
    assert step is not None
    assert await cache.get() == 1
    source.elapsed = 10
    assert await cache.get() == 2
    asking.close()


async def test_a_fetch_is_nobodys_work() -> None:
    async def fetch() -> object:
        return working_for.get()

    with work_for(Share(ShareKind.CALLER, "alice")):
        assert await TtlCache(fetch, 10).get() is None


async def test_a_caller_that_is_cancelled_leaves_the_fetch_to_the_others() -> None:
    source = Source()
    cache = source.cache()
    first, second = (asyncio.create_task(cache.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1


async def test_what_cannot_be_refreshed_is_stale_since_the_last_success() -> None:
    source = Source()
    cache = source.cache(failure_ttl_s=2)
    assert await cache.get_or_stale() == CachedValue(1)
    source.elapsed = 20
    source.failure = WorkloadManagerError("away")
    assert await cache.get_or_stale() == CachedValue(1, START)
    with pytest.raises(WorkloadManagerError, match="away"):
        await cache.get()
    assert source.fetches == 2
    source.elapsed, source.failure = 22, None
    assert await cache.get_or_stale() == CachedValue(3)


async def test_a_failure_without_any_value_is_raised_and_not_cached_by_default() -> None:
    source = Source()
    cache = source.cache()
    source.failure = TimeoutError("slow")
    for _ in range(2):
        with pytest.raises(TimeoutError, match="slow"):
            await cache.get_or_stale()
    assert source.fetches == 2


async def test_other_faults_pass_through() -> None:
    source = Source()
    source.failure = KeyError("a bug")
    with pytest.raises(KeyError):
        await source.cache().get_or_stale()
