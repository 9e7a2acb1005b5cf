"""A controller: a queue of objects, and the reconciliation of each by steps.

    watches, other components ──> queue ──> observe ──> steps ──> report
                                    ^                               │
                                    └────── back-off or resync ─────┘

One reconciliation of an object runs at a time, `at_once` of all objects, and `of_a_namespace` of those of one
tenant, whose objects may hang. After a failure the pauses grow, with jitter; otherwise each object is
reconciled again after `resync_s`, whatever the watches showed. Between two reconciliations only the number of
failures is kept, so a crash in the middle of one needs no clean-up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic

import structlog

from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ApiError
from redbox_kube.controller.kube_object import KubeObject
from redbox_kube.controller.metrics import ControllerMetrics
from redbox_kube.controller.steps import (
    DEADLINE_S,
    ReconcileStep,
    Reports,
    StepFailed,
    StepReport,
    StepState,
    WorldT,
    check_steps,
    run_steps,
)
from redbox_kube.controller.watched import Concerns, ItemT, WatchedKind
from redbox_kube.runtime.grouped_warnings import GroupedWarnings
from redbox_kube.runtime.work_queue import WorkQueue
from redbox_shared.backoff import Backoff
from redbox_shared.keyed_semaphores import FairSlots

log = structlog.get_logger(__name__)
BACKOFF = Backoff(1.0, 60.0)
RESYNC_S = 60.0
AT_ONCE, OF_A_NAMESPACE = 16, 4
OUTSIDE = "-"
"""In place of a step's name: observing or reporting failed."""
Watch = tuple[WatchedKind[Any], Concerns[Any]]
"""Objects of another kind, and what each concerns."""


@dataclass(frozen=True)
class Reconciliation(Generic[ItemT, WorldT]):
    """How objects of one kind are reconciled."""

    observe: Callable[[ItemT], Awaitable[WorldT]]
    """Everything that the steps look at, read once."""
    steps: Sequence[ReconcileStep[WorldT]]
    deletion: Sequence[ReconcileStep[WorldT]] = ()
    """The steps for an object that is being deleted; the last one lifts its finalizer."""
    report: Callable[[ItemT, WorldT, Reports], Awaitable[None]] | None = None
    """Writes the status."""
    observe_within_s: float = DEADLINE_S

    def __post_init__(self) -> None:
        check_steps(self.steps)
        check_steps(self.deletion)


class Controller(Generic[ItemT, WorldT]):
    """Reconciles the objects of one kind; `run_controllers` runs it."""

    def __init__(
        self,
        name: str,
        kind: WatchedKind[ItemT],
        reconciliation: Reconciliation[ItemT, WorldT],
        metrics: ControllerMetrics,
        *,
        watches: Sequence[Watch] = (),
        at_once: int = AT_ONCE,
        of_a_namespace: int = OF_A_NAMESPACE,
        resync_s: float = RESYNC_S,
    ) -> None:
        self.queue: WorkQueue[Place] = WorkQueue()
        self.watched = [kind, *(watched for watched, _ in watches)]
        self._name = name
        self._kind = kind
        self._reconciliation = reconciliation
        self._metrics = metrics
        self._slots = FairSlots(at_once, of_a_namespace)
        self._resync_s = resync_s
        self._failures: dict[Place, int] = {}
        self._warnings = GroupedWarnings(f"{kind.kind} not reconciled")
        kind.follow(self.queue.add, input_of=_input_of)
        for watched, concerns in watches:
            watched.follow(self.queue.add, concerns)
        metrics.follow_queue(name, lambda: self.queue.unfinished)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self.queue.run(self._handle, workers=None)

    async def _handle(self, place: Place) -> None:
        namespace = place[0]
        for watched in self.watched:
            await watched.listed(namespace)  # one that may not be listed stops no other
        async with self._slots.of(namespace):
            await self._handle_now(place)

    async def _handle_now(self, place: Place) -> None:
        self.queue.forget(place)
        item = self._kind.get(place)
        if item is None:
            self._failures.pop(place, None)
            self._warnings.recovered("/".join(place))
            return
        began = monotonic()
        try:
            reports = await self._reconcile(item)
        except (ApiError, OSError, TimeoutError, StepFailed) as error:
            reports = {OUTSIDE: StepReport(StepState.FAILED, str(error) or "not observed in time")}
        except Exception as error:
            # A defect that one object triggers must not stop the others.
            log.exception("defect", controller=self._name, object="/".join(place))
            reports = {OUTSIDE: StepReport(StepState.FAILED, repr(error), is_defect=True)}
        self._metrics.reconciled(self._name, monotonic() - began)
        self.queue.add_later(place, self._pause_s(place, reports))

    async def _reconcile(self, item: ItemT) -> Reports:
        how = self._reconciliation
        is_going = isinstance(item, KubeObject) and item.being_deleted
        if is_going and not how.deletion:
            return {}  # nothing of ours keeps it
        async with asyncio.timeout(how.observe_within_s):
            world = await how.observe(item)
        reports = await run_steps(how.deletion if is_going else how.steps, world)
        if how.report is not None:
            await how.report(item, world, reports)
        return reports

    def _pause_s(self, place: Place, reports: Reports) -> float:
        failed = {name: each for name, each in reports.items() if each.state is StepState.FAILED}
        if failed:
            return self._pause_after(place, failed)
        self._failures.pop(place, None)
        self._warnings.recovered("/".join(place))
        asked = [each.outcome.again_in_s for each in reports.values() if each.outcome.again_in_s is not None]
        return min(asked, default=self._resync_s * random.uniform(0.9, 1.1))  # noqa: S311 (spreads load)

    def _pause_after(self, place: Place, failed: Reports) -> float:
        for step, report in failed.items():
            self._metrics.failed(self._name, step, is_defect=report.is_defect)
        step, first = next(iter(failed.items()))
        self._warnings.failed("/".join(place), f"{step}: {first.message}")
        failures = self._failures[place] = self._failures.get(place, 0) + 1
        return BACKOFF.pause_s(failures)


async def run_controllers(controllers: Sequence[Controller[Any, Any]]) -> None:
    """Run them and their watches until cancelled; a watch that several follow runs once."""
    watches = {id(watched): watched for controller in controllers for watched in controller.watched}
    async with asyncio.TaskGroup() as group:
        for watched in watches.values():
            group.create_task(watched.run())
        for controller in controllers:
            group.create_task(controller.run())


def _input_of(item: object) -> object:
    """Our own write of a status begins no reconciliation."""
    return item.user_input if isinstance(item, KubeObject) else object()
