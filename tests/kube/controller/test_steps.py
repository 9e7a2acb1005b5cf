"""Steps fail each for itself."""

from __future__ import annotations

import asyncio

import pytest

from redbox_kube.api.objects import ApiRefused
from redbox_kube.controller.steps import (
    ReconcileStep,
    StepFailed,
    StepOutcome,
    StepState,
    check_steps,
    conditions_of_steps,
    run_steps,
)

World = list[str]


async def works(world: World) -> None:
    world.append("worked")


async def is_refused(_: World) -> StepOutcome:
    raise ApiRefused(403, "exceeded quota: q")


async def waits(_: World) -> StepOutcome:
    return StepOutcome(waits_for="the pod to be ready", again_in_s=2.0)


async def hangs(_: World) -> None:
    await asyncio.Event().wait()


async def has_a_defect(_: World) -> None:
    raise KeyError("spec")


async def test_a_step_that_fails_stops_only_the_steps_that_need_it() -> None:
    world: World = []
    steps = [
        ReconcileStep("Config", is_refused),
        ReconcileStep("Pods", works, needs=("Config",)),
        ReconcileStep("Service", works),
        ReconcileStep("Endpoint", works, needs=("Pods",)),
    ]
    reports = await run_steps(steps, world)
    assert {name: report.state for name, report in reports.items()} == {
        "Config": StepState.FAILED,
        "Pods": StepState.BLOCKED,
        "Service": StepState.DONE,
        "Endpoint": StepState.BLOCKED,
    }
    assert world == ["worked"]


async def test_conditions_have_the_names_of_the_steps() -> None:
    steps = [ReconcileStep("Ready", waits), ReconcileStep("Service", works, needs=("Ready",))]
    ready, service = conditions_of_steps(await run_steps(steps, []))
    assert (ready.type, ready.holds, ready.reason, ready.message) == (
        "Ready",
        False,
        "Waiting",
        "the pod to be ready",
    )
    assert (service.type, service.holds) == ("Service", None)
    assert "Ready" in str(service.message)


async def test_a_step_that_hangs_or_has_a_defect_ends_as_failed() -> None:
    steps = [
        ReconcileStep("Slow", hangs, deadline_s=0.01),
        ReconcileStep("Broken", has_a_defect),
        ReconcileStep("Fine", works),
    ]
    reports = await run_steps(steps, [])
    assert [report.state for report in reports.values()] == [
        StepState.FAILED,
        StepState.FAILED,
        StepState.DONE,
    ]
    assert [report.is_defect for report in reports.values()] == [False, True, False]
    assert "not done within" in reports["Slow"].message


async def test_an_expected_failure_is_one_sentence() -> None:
    async def fails(_: World) -> None:
        raise StepFailed("Secret key exists: delete it")

    assert (await run_steps([ReconcileStep("Key", fails)], []))[
        "Key"
    ].message == "Secret key exists: delete it"


@pytest.mark.parametrize(
    "steps",
    [
        [ReconcileStep("A", works), ReconcileStep("A", works)],
        [ReconcileStep("A", works, needs=("B",)), ReconcileStep("B", works)],
    ],
)
def test_a_step_needs_earlier_steps_of_other_names(steps: list[ReconcileStep[World]]) -> None:
    with pytest.raises(ValueError, match="A"):
        check_steps(steps)
