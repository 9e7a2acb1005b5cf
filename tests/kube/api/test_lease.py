"""One leader at a time, against an API server that checks versions and whose answers can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redbox_kube.api import kinds
from redbox_kube.api import lease as leases
from redbox_kube.api.lease import Lease, LeaseLost
from redbox_kube.api.objects import ApiUnreachable, Object, ResourcePath
from tests.kube.fakes import FakeApiServer

PATH = ResourcePath(kinds.LEASE, "redbox-operator", "redbox-system")
AWAY = ApiUnreachable("the API server does not answer")


def holder_of(api: FakeApiServer) -> str:
    return str(api.objects[PATH]["spec"]["holderIdentity"])


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    monkeypatch.setattr(leases, "EVERY_S", 0.01)
    return FakeApiServer()


def lease_of(api: FakeApiServer, holder: str) -> Lease:
    return Lease(api.client, "redbox-system", "redbox-operator", holder)


async def test_the_first_holds_it_and_the_second_waits_until_it_is_free(
    api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    times = [0.0]
    monkeypatch.setattr(leases, "_now", lambda: times[-1])
    one, two = lease_of(api, "one"), lease_of(api, "two")

    async def lead(lease: Lease, until: asyncio.Event) -> None:
        holder = lease.holder
        async with lease.leading():
            order.append(f"{holder} begins")
            await until.wait()
            order.append(f"{holder} ends")

    first_may_end, second_may_end = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(lead(one, first_may_end))
        await until(lambda: order == ["one begins"])
        group.create_task(lead(two, second_may_end))
        await until(lambda: two.leader == "one")
        for _ in range(10):  # longer than it is held unless it is renewed
            times.append(times[-1] + leases.HELD_S / 3)
            await until(lambda: one._renewed_at == times[-1])
        assert order == ["one begins"]
        first_may_end.set()
        await until(lambda: len(order) == 3)
        second_may_end.set()
    assert order == ["one begins", "one ends", "two begins", "two ends"]


async def test_one_that_died_is_waited_for_and_then_replaced(
    api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "HELD_S", 0.2)
    async with lease_of(api, "dead").leading():
        left_behind = api.objects[PATH]
    api.put(PATH, {**left_behind, "spec": {**left_behind["spec"], "leaseDurationSeconds": 0}})
    async with asyncio.timeout(60), lease_of(api, "next").leading():
        assert holder_of(api) == "next"


async def test_the_same_holder_goes_on_at_once_after_a_crash(api: FakeApiServer) -> None:
    api.put(PATH, spec={"holderIdentity": "pod-1", "leaseDurationSeconds": 3600, "renewTime": "x"})
    async with asyncio.timeout(60), lease_of(api, "pod-1").leading():
        assert holder_of(api) == "pod-1"


async def test_whoever_loses_it_to_another_stops_at_once(api: FakeApiServer) -> None:
    def take_it() -> None:
        spec = {**api.objects[PATH]["spec"], "holderIdentity": "two", "leaseDurationSeconds": 3600}
        api.put(PATH, spec=spec)

    with pytest.raises(ExceptionGroup) as ended:
        await lead_for_ever(api, take_it)
    assert ended.group_contains(LeaseLost, match="held by two")
    assert holder_of(api) == "two"


async def test_whoever_cannot_renew_it_stops_before_another_may_begin(
    api: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "GIVES_UP_S", 0.1)

    def go_away() -> None:
        api.fail(AWAY)

    with pytest.raises(ExceptionGroup) as ended:
        await lead_for_ever(api, go_away)
    assert ended.group_contains(LeaseLost, match="could not be renewed")


async def test_a_write_of_another_client_between_read_and_renewal_does_not_end_it(api: FakeApiServer) -> None:
    """As `kubectl annotate`, or an earlier renewal of ours whose response was lost."""
    lease = lease_of(api, "one")
    async with asyncio.timeout(60), lease.leading():
        replace, refused = lease.objects.replace, 0

        async def replace_too_late(where: ResourcePath, body: Object) -> Object | None:
            nonlocal refused
            if refused < 2:
                refused += 1
                api.put(where, spec=api.objects[where]["spec"])
            return await replace(where, body)

        lease.objects.replace = replace_too_late  # type: ignore[method-assign]
        await until(lambda: refused == 2)
        renewed_at = lease._renewed_at
        await until(lambda: lease._renewed_at > renewed_at)


async def lead_for_ever(api: FakeApiServer, fault: Callable[[], None]) -> None:
    async with asyncio.timeout(60), lease_of(api, "one").leading():
        fault()
        await asyncio.Event().wait()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (what is waited for sets no event)
            await asyncio.sleep(0.005)


async def test_whoever_waits_knows_who_leads_and_that_nobody_can_be_asked(api: FakeApiServer) -> None:
    """Of two replicas one waits, as ready as it can be: else no rollout would end, and no drain of a node."""
    first, second = lease_of(api, "one"), lease_of(api, "two")
    async with first.leading():
        assert first.leader == "one"
        assert second.leader == ""
        waiting = asyncio.create_task(second._acquire())
        await until(lambda: second.leader == "one")
        api.fail(AWAY)
        await until(lambda: second.leader == "")
        waiting.cancel()
        api.recover()
