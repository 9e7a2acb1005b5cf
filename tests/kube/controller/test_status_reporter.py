"""A status is written once, whatever the watch shows of it so far."""

from __future__ import annotations

from redbox_kube.controller.kube_object import ConditionedStatus, KubeObject, read_object
from redbox_kube.controller.status_reporter import StatusReporter
from redbox_kube.controller.steps import Reports, StepReport, StepState
from redbox_kube.status.conditions import NewCondition
from tests.kube.controller.owner import FARM, FARMS, status_writer
from tests.kube.fakes import FakeApiServer

DONE = {"Fence": StepReport(StepState.DONE)}
WAITS = {"Fence": StepReport(StepState.WAITING, "wood")}


def reporter(api: FakeApiServer) -> StatusReporter[None]:
    def status_of(_: None, reports: Reports) -> tuple[ConditionedStatus, list[NewCondition]]:
        is_ready = reports["Fence"].state is StepState.DONE
        return ConditionedStatus(), [NewCondition("Ready", "Fenced", holds=is_ready)]

    return StatusReporter(status_writer(api), FARMS, status_of)


def stored(api: FakeApiServer) -> KubeObject:
    return read_object(KubeObject, api.objects[FARM])


def conditions(api: FakeApiServer) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status.value, each.message) for each in stored(api).status.conditions}


async def test_a_status_that_the_watch_has_not_shown_is_not_written_again() -> None:
    api = FakeApiServer()
    api.put(FARM)
    report, before = reporter(api), stored(api)
    for _ in range(3):
        await report(before, None, DONE)
    await report(stored(api), None, DONE)
    assert api.asked.count("status Farm") == 1


async def test_a_status_that_is_as_the_watch_still_shows_it_is_written() -> None:
    api = FakeApiServer()
    api.put(FARM)
    report = reporter(api)
    await report(stored(api), None, DONE)
    before = stored(api)
    await report(before, None, WAITS)
    await report(before, None, DONE)
    assert conditions(api) == {"Ready": ("True", ""), "Fence": ("True", "")}


async def test_what_somebody_else_wrote_is_undone() -> None:
    api = FakeApiServer()
    api.put(FARM)
    report = reporter(api)
    await report(stored(api), None, DONE)
    api.put(FARM, {**api.objects[FARM], "status": {"observedGeneration": 7}})
    await report(stored(api), None, DONE)
    assert stored(api).status.observed_generation is None
    assert conditions(api) == {"Ready": ("True", ""), "Fence": ("True", "")}


async def test_an_object_that_is_created_anew_has_its_own_status() -> None:
    api = FakeApiServer()
    api.put(FARM)
    report = reporter(api)
    await report(stored(api), None, DONE)
    api.remove(FARM)
    api.put(FARM)
    await report(stored(api), None, DONE)
    assert conditions(api) == {"Ready": ("True", ""), "Fence": ("True", "")}


async def test_nothing_is_kept_of_an_object_that_is_gone() -> None:
    api = FakeApiServer()
    api.put(FARM)
    report, before = reporter(api), stored(api)
    await report(before, None, DONE)
    report.forget(before.place)
    await report(before, None, DONE)
    assert api.asked.count("status Farm") == 2


async def test_nobody_knows_whether_an_object_that_is_not_observed_is_ready() -> None:
    api = FakeApiServer()
    api.put(FARM)
    report = reporter(api)
    await report(stored(api), None, DONE)
    await report.not_observed(stored(api), "etcd is away")
    assert conditions(api) == {
        "Ready": ("Unknown", "etcd is away"),
        "Fence": ("True", ""),
        "Observed": ("False", "etcd is away"),
    }
    await report(stored(api), None, DONE)
    assert conditions(api) == {"Ready": ("True", ""), "Fence": ("True", "")}
