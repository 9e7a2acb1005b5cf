"""Named steps over one snapshot of the world.

A step looks at the snapshot alone, and never at what another step did a moment ago. The watch of a changed
object begins the next reconciliation, whose snapshot has the change. A step that fails stops only the steps
that need it. So a reconciliation may end anywhere, and the next one continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import structlog

from redbox_kube.api.objects import ApiError
from redbox_kube.status.conditions import NewCondition

log = structlog.get_logger(__name__)
WorldT = TypeVar("WorldT")
WorldT_contra = TypeVar("WorldT_contra", contravariant=True)
DEADLINE_S = 60.0


class StepFailed(Exception):
    """Base of the expected failures of steps: one sentence with the cure. Any other exception is a defect."""


class StepState(StrEnum):
    """How a step ended; the reason of its condition."""

    DONE = "Done"
    WAITING = "Waiting"
    FAILED = "Failed"
    BLOCKED = "Blocked"  # not tried: a step that it needs is not done


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step did, or what it waits for; with both empty, there was nothing to do."""

    did: str = ""
    waits_for: str = ""
    again_in_s: float | None = None
    """When to look again if no watch will tell."""
    fact: object = None
    """What it has read, for the status."""


@dataclass(frozen=True, slots=True)
class ReconcileStep(Generic[WorldT_contra]):
    """One step; its name is the type of its condition. None is an outcome with nothing to do."""

    name: str
    act: Callable[[WorldT_contra], Awaitable[StepOutcome | None]]
    needs: tuple[str, ...] = ()
    deadline_s: float = DEADLINE_S


@dataclass(frozen=True, slots=True)
class StepReport:
    """How a step ended, and why."""

    state: StepState
    message: str = ""
    outcome: StepOutcome = StepOutcome()
    is_defect: bool = False


Reports = Mapping[str, StepReport]
"""By the names of the steps, in their order."""


def check_steps(steps: Sequence[ReconcileStep[WorldT]]) -> None:
    """Raise ValueError unless each name is unique, and each step needs earlier ones only."""
    earlier: set[str] = set()
    for step in steps:
        if step.name in earlier:
            raise ValueError(f"two steps are called {step.name}")
        if unknown := set(step.needs) - earlier:
            raise ValueError(f"the step {step.name} needs {sorted(unknown)}, which are not before it")
        earlier.add(step.name)


async def run_steps(steps: Iterable[ReconcileStep[WorldT]], world: WorldT) -> dict[str, StepReport]:
    """Run them in their order; only cancellation ends it early."""
    reports: dict[str, StepReport] = {}
    for step in steps:
        missing = next((name for name in step.needs if reports[name].state is not StepState.DONE), None)
        if missing is None:
            reports[step.name] = await _tried(step, world)
        else:
            reports[step.name] = StepReport(StepState.BLOCKED, f"needs the step {missing}, which is not done")
    return reports


async def _tried(step: ReconcileStep[WorldT], world: WorldT) -> StepReport:
    try:
        async with asyncio.timeout(step.deadline_s):
            outcome = await step.act(world) or StepOutcome()
    except TimeoutError as error:
        return StepReport(StepState.FAILED, str(error) or f"not done within {step.deadline_s:.0f} s")
    except (ApiError, OSError, StepFailed) as error:
        return StepReport(StepState.FAILED, str(error))
    except Exception as error:
        log.exception("defect", step=step.name)
        return StepReport(StepState.FAILED, f"a defect, see the log: {error!r}", is_defect=True)
    if outcome.waits_for:
        return StepReport(StepState.WAITING, outcome.waits_for, outcome)
    return StepReport(StepState.DONE, outcome=outcome)


def conditions_of_steps(reports: Reports) -> list[NewCondition]:
    """One for each step: true if it is done, unknown if it was not tried."""
    return [
        NewCondition(name, report.state, report.message, holds=_holds(report.state))
        for name, report in reports.items()
    ]


def _holds(state: StepState) -> bool | None:
    return None if state is StepState.BLOCKED else state is StepState.DONE
