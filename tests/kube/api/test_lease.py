"""One leader at a time, against an API server that checks versions and whose answers can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from redbox_kube.api import lease as leases
from redbox_kube.api.lease import Lease, LeaseLost
from redbox_kube.api.objects import ApiUnreachable, Object, ObjectClient, ResourcePath


class OneLease:
    """Holds one Lease, and refuses to replace a version that is not the newest."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.away = False

    async def get(self, where: ResourcePath) -> Object | None:
        del where
        self._answer()
        return None if self.lease is None else {**self.lease}

    async def create(self, where: ResourcePath, body: Object) -> Object | None:
        assert where.name == ""
        self._answer()
        return None if self.lease else self._stored(body, 1)

    async def replace(self, where: ResourcePath, body: Object) -> Object | None:
        del where
        self._answer()
        assert self.lease is not None
        newest = int(self.lease["metadata"]["resourceVersion"])
        if int(body["metadata"]["resourceVersion"]) != newest:
            return None
        return self._stored(body, newest + 1)

    @property
    def holder(self) -> str:
        return str(self.lease and self.lease["spec"]["holderIdentity"])

    def _stored(self, body: Object, version: int) -> Object:
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
        return self.lease

    def _answer(self) -> None:
        if self.away:
            raise ApiUnreachable("the API server does not answer")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> OneLease:
    monkeypatch.setattr(leases, "EVERY_S", 0.01)
    monkeypatch.setattr(leases, "GIVES_UP_S", 0.1)
    monkeypatch.setattr(leases, "HELD_S", 0.2)
    return OneLease()


def lease_of(api: OneLease, holder: str) -> Lease:
    return Lease(cast("ObjectClient", api), "redbox-system", "redbox-operator", holder)


async def test_the_first_holds_it_and_the_second_waits_until_it_is_free(api: OneLease) -> None:
    order: list[str] = []

    async def lead(holder: str, until: asyncio.Event) -> None:
        async with lease_of(api, holder).leading():
            order.append(f"{holder} begins")
            await until.wait()
            order.append(f"{holder} ends")

    first_may_end, second_may_end = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(lead("one", first_may_end))
        await until(lambda: order == ["one begins"])
        group.create_task(lead("two", second_may_end))
        await asyncio.sleep(0.5)  # longer than it is held unless it is renewed
        assert order == ["one begins"]
        first_may_end.set()
        await until(lambda: len(order) == 3)
        second_may_end.set()
    assert order == ["one begins", "one ends", "two begins", "two ends"]


async def test_one_that_died_is_waited_for_and_then_replaced(api: OneLease) -> None:
    async with lease_of(api, "dead").leading():
        left_behind = api.lease
    api.lease = left_behind
    api.lease = {**cast("dict[str, Any]", left_behind), "metadata": {"resourceVersion": "7"}}
    api.lease["spec"]["leaseDurationSeconds"] = 0
    async with asyncio.timeout(5), lease_of(api, "next").leading():
        assert api.holder == "next"


async def test_the_same_holder_goes_on_at_once_after_a_crash(api: OneLease) -> None:
    api.lease = {
        "metadata": {"resourceVersion": "1"},
        "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 3600, "renewTime": "x"},
    }
    async with asyncio.timeout(5), lease_of(api, "pod-1").leading():
        assert api.holder == "pod-1"


async def test_whoever_loses_it_to_another_stops_at_once(api: OneLease) -> None:
    def take_it() -> None:
        assert api.lease is not None
        spec = {**api.lease["spec"], "holderIdentity": "two", "leaseDurationSeconds": 3600}
        api.lease = {"metadata": {"resourceVersion": "99"}, "spec": spec}

    with pytest.raises(ExceptionGroup) as ended:
        await lead_for_ever(api, take_it)
    assert ended.group_contains(LeaseLost, match="held by two")
    assert api.holder == "two"


async def test_whoever_cannot_renew_it_stops_before_another_may_begin(api: OneLease) -> None:
    def go_away() -> None:
        api.away = True

    with pytest.raises(ExceptionGroup) as ended:
        await lead_for_ever(api, go_away)
    assert ended.group_contains(LeaseLost, match="could not be renewed")


async def lead_for_ever(api: OneLease, fault: Callable[[], None]) -> None:
    async with asyncio.timeout(5), lease_of(api, "one").leading():
        fault()
        await asyncio.Event().wait()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 (what is waited for sets no event)
            await asyncio.sleep(0.005)


async def test_whoever_waits_knows_who_leads_and_that_nobody_can_be_asked(api: OneLease) -> None:
    """Of two replicas one waits, as ready as it can be: else no rollout would end, and no drain of a node."""
    first, second = lease_of(api, "one"), lease_of(api, "two")
    async with first.leading():
        assert first.leader == "one"
        assert second.leader == ""
        waiting = asyncio.create_task(second._acquire())
        await until(lambda: second.leader == "one")
        api.away = True
        await until(lambda: second.leader == "")
        waiting.cancel()
        api.away = False
