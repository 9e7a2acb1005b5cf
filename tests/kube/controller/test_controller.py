"""A controller reconciles each object until it is as it should be, and no object waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from redbox_kube.api import informer
from redbox_kube.api.kinds import CONFIG_MAP
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_kube.controller import controller as module
from redbox_kube.controller.controller import Controller, Reconciliation, run_controllers
from redbox_kube.controller.finalizer import Finalizer
from redbox_kube.controller.kube_object import ConditionedStatus, KubeObject, read_object
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.status_reporter import StatusReporter
from redbox_kube.controller.steps import ReconcileStep, StepOutcome, StepReport, StepState
from redbox_kube.controller.watched import WatchedKind
from redbox_shared.backoff import Backoff
from tests.kube.controller.owner import FARM, FARMS, status_writer
from tests.kube.fakes import FakeApiServer

OTHER = ResourcePath(FARMS, "pigs", "alice")
Steps = Sequence[ReconcileStep[KubeObject]]


async def observe(item: KubeObject) -> KubeObject:
    return item


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF", Backoff(0.001, 0.01))
    monkeypatch.setattr(informer, "BACKOFF", Backoff(0.001, 0.01))


@asynccontextmanager
async def controlled(
    api: FakeApiServer,
    steps: Steps,
    deletion: Steps = (),
    *,
    registry: CollectorRegistry | None = None,
    looks_by: Callable[[KubeObject], Awaitable[KubeObject]] = observe,
    **options: Any,
) -> AsyncIterator[None]:
    report = StatusReporter[KubeObject](status_writer(api), FARMS, lambda *_: (ConditionedStatus(), []))
    farms = WatchedKind(api.client, FARMS, reduced=partial(read_object, KubeObject))
    metrics = ControllerMetrics(registry or CollectorRegistry())
    how = Reconciliation(looks_by, steps, deletion, report)
    task = asyncio.create_task(run_controllers([Controller("farms", farms, how, metrics, **options)]))
    yield
    assert not task.done()
    task.cancel()


async def eventually(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not check():  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.001)


class Counted:
    """A step, with what it does at each call."""

    def __init__(self, *does: StepOutcome | Exception | None) -> None:
        self.does = list(does)
        self.calls: list[str] = []

    async def __call__(self, item: KubeObject) -> StepOutcome | None:
        self.calls.append(item.name)
        does = self.does.pop(0) if self.does else None
        if isinstance(does, Exception):
            raise does
        return does


def conditions(api: FakeApiServer, where: ResourcePath = FARM) -> dict[str, str]:
    found = api.objects[where].get("status", {}).get("conditions", [])
    return {condition["type"]: condition["reason"] for condition in found}


async def test_a_failure_is_tried_again_and_then_done() -> None:
    api, registry = FakeApiServer(), CollectorRegistry()
    api.put(FARM)
    step = Counted(ApiRefused(500, "etcd is away"), ApiRefused(500, "etcd is away"), KeyError("x"))
    async with controlled(api, [ReconcileStep("Fence", step)], registry=registry):
        await eventually(lambda: len(step.calls) == 4 and conditions(api) == {"Fence": "Done"})
        await eventually(lambda: "FenceRecovered" in [event["reason"] for event in api.events])
    text = generate_latest(registry).decode()
    assert 'step_errors_total{cause="expected",controller="farms",step="Fence"} 2.0' in text
    assert 'step_errors_total{cause="defect",controller="farms",step="Fence"} 1.0' in text
    assert 'reconcile_seconds_count{controller="farms"} 4.0' in text


async def test_its_own_write_of_a_status_begins_no_reconciliation() -> None:
    api = FakeApiServer()
    api.put(FARM)
    step = Counted()
    async with controlled(api, [ReconcileStep("Fence", step)]):
        await eventually(lambda: conditions(api) == {"Fence": "Done"})
        api.put(OTHER)
        await eventually(lambda: conditions(api, OTHER) == {"Fence": "Done"})
    assert step.calls == ["cows", "pigs"]


async def test_what_is_as_it_was_is_reconciled_again_and_not_written_again() -> None:
    api = FakeApiServer()
    api.put(FARM)
    step = Counted()
    async with controlled(api, [ReconcileStep("Fence", step)], resync_s=0.001):
        await eventually(lambda: len(step.calls) > 20)
    assert api.asked.count("status Farm") == 1


def pause_s(resync_s: float, *does: StepOutcome | None) -> float:
    """Until the next reconciliation; None for a step that fails."""
    farms = WatchedKind[Any](FakeApiServer().client, FARMS)
    how = Reconciliation[Any, Any](observe, [])
    controller = Controller("farms", farms, how, ControllerMetrics(CollectorRegistry()), resync_s=resync_s)
    reports = {
        str(at): StepReport(StepState.DONE, outcome=did) if did else StepReport(StepState.FAILED, "no")
        for at, did in enumerate(does)
    }
    return controller._pause_s(("alice", "cows"), reports)


@pytest.mark.parametrize(
    ("resync_s", "does", "at_most_s"),
    [
        (60.0, [StepOutcome(again_in_s=3600.0)], 66.0),
        (60.0, [StepOutcome(again_in_s=2.0), StepOutcome(again_in_s=30.0)], 2.0),
        (60.0, [StepOutcome()], 66.0),
        (60.0, [None], 10.0),
        (60.0, [None, StepOutcome(again_in_s=2.0)], 2.0),
        (60.0, [None, StepOutcome(again_in_s=3600.0)], 10.0),
    ],
)
async def test_the_earliest_of_all_times_counts(
    monkeypatch: pytest.MonkeyPatch, resync_s: float, does: list[StepOutcome | None], at_most_s: float
) -> None:
    monkeypatch.setattr(module, "BACKOFF", Backoff(10.0, 10.0))
    assert 0 < pause_s(resync_s, *does) <= at_most_s


async def test_a_defect_in_one_object_stops_no_other() -> None:
    api = FakeApiServer()
    api.put(FARM)
    api.put(OTHER)

    async def breaks_for_cows(item: KubeObject) -> None:
        if item.name == "cows":
            raise KeyError(item.name)

    async with controlled(api, [ReconcileStep("Fence", breaks_for_cows)], at_once=1):
        await eventually(lambda: conditions(api, OTHER) == {"Fence": "Done"})
        await eventually(lambda: conditions(api) == {"Fence": "Failed"})


async def test_a_tenant_whose_objects_hang_delays_no_other_tenant() -> None:
    api, bobs = FakeApiServer(), ResourcePath(FARMS, "goats", "bob")
    api.put(FARM)
    api.put(OTHER)
    hanging: list[str] = []

    async def hangs_for_alice(item: KubeObject) -> None:
        if item.namespace == "alice":
            hanging.append(item.name)
            await asyncio.Event().wait()

    steps = [ReconcileStep("Fence", hangs_for_alice)]
    async with controlled(api, steps, at_once=2, of_a_namespace=1):
        await eventually(lambda: bool(hanging))
        api.put(bobs)
        await eventually(lambda: conditions(api, bobs) == {"Fence": "Done"})


async def test_a_namespace_that_may_not_be_listed_stops_no_other() -> None:
    api, step = FakeApiServer(), Counted()
    api.put(FARM)
    api.fail(ApiRefused(403, "farms is forbidden"), verb="list", namespace="bob")
    farms = WatchedKind(
        api.client, FARMS, namespaces=["alice", "bob"], reduced=partial(read_object, KubeObject)
    )
    how = Reconciliation(observe, [ReconcileStep("Fence", step)])
    controller = Controller("farms", farms, how, ControllerMetrics(CollectorRegistry()))
    task = asyncio.create_task(run_controllers([controller]))
    await eventually(lambda: step.calls == ["cows"])
    task.cancel()


async def test_nothing_is_reconciled_before_what_it_owns_is_listed() -> None:
    api, step = FakeApiServer(), Counted()
    api.put(FARM)
    fault = api.fail(ApiRefused(500, "etcd is away"), verb="list", kind="ConfigMap")
    watches = OwnedObjects(status_writer(api), FARMS, [CONFIG_MAP]).watches
    async with controlled(api, [ReconcileStep("Fence", step)], watches=watches):
        await eventually(lambda: "list ConfigMap" in api.asked and "watch Farm" in api.asked)
        assert step.calls == []
        api.faults.remove(fault)
        await eventually(lambda: step.calls == ["cows"])


async def test_a_kind_that_may_not_be_listed_shows_in_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED_WITHIN_S", 0.01)
    api, step = FakeApiServer(), Counted()
    api.put(FARM)
    fault = api.fail(ApiRefused(403, "configmaps is forbidden"), verb="list", kind="ConfigMap")
    watches = OwnedObjects(status_writer(api), FARMS, [CONFIG_MAP]).watches
    async with controlled(api, [ReconcileStep("Fence", step)], watches=watches):
        await eventually(lambda: conditions(api) == {"Observed": "Failed"})
        (condition,) = api.objects[FARM]["status"]["conditions"]
        assert condition["status"] == "False"
        assert condition["message"] == "configmaps cannot be listed: configmaps is forbidden"
        assert step.calls == []
        api.faults.remove(fault)
        await eventually(lambda: conditions(api) == {"Fence": "Done"})


async def test_an_object_that_cannot_be_observed_says_so_in_its_status() -> None:
    api = FakeApiServer()
    api.put(FARM)
    looks: list[Exception] = [ApiRefused(500, "etcd is away"), KeyError("spec")]
    seen: list[str] = []

    async def fails_twice(item: KubeObject) -> KubeObject:
        seen.append(str(conditions(api)))
        if looks:
            raise looks.pop(0)
        return item

    async with controlled(api, [ReconcileStep("Fence", Counted())], looks_by=fails_twice):
        await eventually(lambda: conditions(api) == {"Fence": "Done"})
    assert seen == ["{}", "{'Observed': 'Failed'}", "{'Observed': 'Failed'}"]
    assert api.asked.count("status Farm") == 3
    assert [event["reason"] for event in api.events] == ["ObservedFailed"]


async def test_nothing_is_done_to_an_object_that_goes_if_there_is_nothing_to_end() -> None:
    api = FakeApiServer()
    since = {"lastTransitionTime": "2026-01-01T00:00:00Z", "status": "True"}
    status = {"conditions": [{"type": "Fence", "reason": "Done", **since}]}
    api.put(FARM, metadata={"deletionTimestamp": "now", "finalizers": ["of others"]}, status=status)
    api.put(OTHER)
    step = Counted()
    async with controlled(api, [ReconcileStep("Fence", step)], at_once=1):
        await eventually(lambda: conditions(api, OTHER) == {"Fence": "Done"})
    assert step.calls == ["pigs"]
    assert conditions(api) == {"Fence": "Done"}


async def test_a_status_that_cannot_be_written_is_tried_again() -> None:
    api = FakeApiServer()
    api.put(FARM)
    api.fail(ApiRefused(500, "etcd is away"), verb="status", times=2)
    async with controlled(api, [ReconcileStep("Fence", Counted())]):
        await eventually(lambda: conditions(api) == {"Fence": "Done"})


async def test_a_finalizer_is_added_first_and_lifted_when_the_end_is_done() -> None:
    api = FakeApiServer()
    api.put(FARM)
    finalizer = Finalizer(status_writer(api), FARMS, "example.dev/farm")
    made, ended = Counted(), Counted(StepOutcome(waits_for="the cows to leave", again_in_s=0.001))
    steps = [ReconcileStep("Finalizer", finalizer.add), ReconcileStep("Fence", made, needs=("Finalizer",))]
    deletion = [ReconcileStep("Empty", ended), ReconcileStep("Finalizer", finalizer.lift, needs=("Empty",))]
    async with controlled(api, steps, deletion):
        await eventually(lambda: conditions(api).get("Fence") == "Done")
        assert api.objects[FARM]["metadata"]["finalizers"] == ["example.dev/farm"]
        await api.delete(FARM)
        await eventually(lambda: FARM not in api.objects)
    assert len(ended.calls) == 2


async def test_an_unreadable_status_is_replaced() -> None:
    api = FakeApiServer()
    api.put(FARM, status={"conditions": "none"})
    async with controlled(api, [ReconcileStep("Fence", Counted())]):
        await eventually(
            lambda: bool(api.asked.count("status Farm")) and conditions(api) == {"Fence": "Done"}
        )


async def test_repeats_of_an_event_are_one_event_that_counts() -> None:
    api = FakeApiServer()
    api.put(FARM)
    refused, done = ApiRefused(403, "exceeded quota"), StepOutcome(again_in_s=0.001)
    step = Counted(refused, done, refused, done, refused)
    async with controlled(api, [ReconcileStep("Fence", step)]):
        await eventually(
            lambda: {event["reason"]: event["count"] for event in api.events}.get("FenceFailed") == 3
        )
    assert len(api.events) == 2


async def test_a_look_that_hangs_is_a_failure_and_tried_again() -> None:
    api = FakeApiServer()
    api.put(FARM)
    looks = 0

    async def hangs_once(item: KubeObject) -> KubeObject:
        nonlocal looks
        looks += 1
        if looks == 1:
            await asyncio.Event().wait()
        return item

    step = Counted()
    how = Reconciliation(hangs_once, [ReconcileStep("Fence", step)], observe_within_s=0.01)
    farms = WatchedKind(api.client, FARMS, reduced=partial(read_object, KubeObject))
    metrics = ControllerMetrics(CollectorRegistry())
    task = asyncio.create_task(run_controllers([Controller("farms", farms, how, metrics)]))
    await eventually(lambda: step.calls == ["cows"])
    task.cancel()


async def test_objects_of_a_namespace_are_left_alone_while_it_is_not_served() -> None:
    api, served, acted = FakeApiServer(), set[str](), asyncio.Queue[str]()

    async def act(item: KubeObject) -> StepOutcome:
        acted.put_nowait(item.name)
        return StepOutcome()

    farms = WatchedKind(api.client, FARMS, reduced=partial(read_object, KubeObject))
    report = StatusReporter[KubeObject](status_writer(api), FARMS, lambda *_: (ConditionedStatus(), []))
    how = Reconciliation(observe, [ReconcileStep("Act", act)], report=report)
    metrics = ControllerMetrics(CollectorRegistry())
    controller = Controller("farms", farms, how, metrics, serves=served.__contains__)
    task = asyncio.create_task(run_controllers([controller]))
    api.put(FARM)
    await farms.listed()
    await eventually(lambda: farms.get(("alice", "cows")) is not None and not controller.queue.unfinished)
    assert acted.empty()
    assert "status" not in api.objects[FARM]
    served.add("alice")
    controller.reconcile_all("alice")
    assert await asyncio.wait_for(acted.get(), 30) == "cows"
    task.cancel()
