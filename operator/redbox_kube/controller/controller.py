"""A controller: a queue of objects, and the reconciliation of each by steps.

    watches, other components ──> queue ──> observe ──> steps ──> report
                                    ^                               │
                                    └────── back-off or resync ─────┘

One reconciliation of an object runs at a time, `at_once` of all objects, and `of_a_namespace` of those of one
tenant, whose objects may hang. After a failure the pauses grow, with jitter; otherwise each object is
reconciled again after `resync_s`, whatever the watches showed. Between two reconciliations only the number of
failures is kept, so a crash in the middle of one needs no clean-up. If the objects cannot be observed, or a
kind cannot be listed, no step runs, and the status says why.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

import structlog

from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import Kind
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
    WorldT_contra,
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
LISTED_WITHIN_S = 30.0
EXPECTED = (ApiError, OSError, TimeoutError, StepFailed)
AT_ONCE, OF_A_NAMESPACE = 16, 4
OUTSIDE = "-"
"""In place of a step's name: observing or reporting failed."""
Watch = tuple[WatchedKind[Any], Concerns[Any]]
"""Objects of another kind, and what each concerns."""
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)


class Report(Protocol[ItemT_contra, WorldT_contra]):
    """Writes statuses: the StatusReporter."""

    async def __call__(self, item: ItemT_contra, world: WorldT_contra, reports: Reports, /) -> None: ...

    async def not_observed(self, item: ItemT_contra, why: str) -> None:
        """No step was run."""

    def forget(self, place: Place) -> None:
        """The object is gone."""


@dataclass(frozen=True)
class Reconciliation(Generic[ItemT, WorldT]):
    """How objects of one kind are reconciled."""

    observe: Callable[[ItemT], Awaitable[WorldT]]
    """Everything that the steps look at, read once."""
    steps: Sequence[ReconcileStep[WorldT]]
    deletion: Sequence[ReconcileStep[WorldT]] = ()
    """The steps for an object that is being deleted; the last one lifts its finalizer."""
    report: Report[ItemT, WorldT] | None = None
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
        serves: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`serves`: whether objects of a namespace may be reconciled now, such as while its Lease is held."""
        self.queue: WorkQueue[Place] = WorkQueue()
        self.watched = [kind, *(watched for watched, _ in watches)]
        self._name = name
        self._kind = kind
        self._reconciliation = reconciliation
        self._metrics = metrics
        self._slots = FairSlots(at_once, of_a_namespace)
        self._resync_s = resync_s
        self._serves = serves
        self._failures: dict[Place, int] = {}
        self._warnings = GroupedWarnings(f"{kind.kind} not reconciled")
        kind.follow(self.queue.add, input_of=_input_of)
        for watched, concerns in watches:
            watched.follow(self.queue.add, concerns)
        metrics.follow_queue(name, lambda: self.queue.unfinished)

    @property
    def kind(self) -> Kind:
        return self._kind.kind

    @property
    def step_names(self) -> list[str]:
        """Each once, those of deletions last: the types of their conditions."""
        how = self._reconciliation
        return list(dict.fromkeys(step.name for step in [*how.steps, *how.deletion]))

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self.queue.run(self._handle, workers=None)

    def reconcile_all(self, namespace: str) -> None:
        """Of a namespace that is served from now on."""
        for place, _ in self._kind.items():  # noqa: PERF102 (no mapping)
            if place[0] == namespace:
                self.queue.add(place)

    async def _handle(self, place: Place) -> None:
        namespace, why_not = place[0], ""
        try:
            async with asyncio.timeout(LISTED_WITHIN_S):
                for watched in self.watched:
                    await watched.listed(namespace)  # one that may not be listed stops no other
        except TimeoutError:
            why_not = next(filter(None, (watched.why_not_listed(namespace) for watched in self.watched)), "")
        async with self._slots.of(namespace):
            await self._handle_now(place, why_not)

    async def _handle_now(self, place: Place, why_not: str) -> None:
        self.queue.forget(place)
        item = self._kind.get(place)
        if item is None:
            self._failures.pop(place, None)
            self._warnings.recovered("/".join(place))
            if self._reconciliation.report is not None:
                self._reconciliation.report.forget(place)
            return
        if not self._serves(place[0]):
            return  # `reconcile_all` follows
        began = monotonic()
        try:
            reports = await self._reconcile(place, item, why_not)
        except Exception as error:  # noqa: BLE001 (a defect that one object triggers must not stop the others)
            reports = {OUTSIDE: self._failure(place, error)}
        self._metrics.reconciled(self._name, monotonic() - began)
        self.queue.add_later(place, self._pause_s(place, reports))

    async def _reconcile(self, place: Place, item: ItemT, why_not: str) -> Reports:
        how = self._reconciliation
        is_going = isinstance(item, KubeObject) and item.being_deleted
        if is_going and not how.deletion:
            return {}  # nothing of ours keeps it
        try:
            world = await self._observed(item, why_not)
        except Exception as error:  # noqa: BLE001 (as above)
            failure = self._failure(place, error)
            if how.report is not None:
                await how.report.not_observed(item, failure.message)
            return {OUTSIDE: failure}
        reports = await run_steps(how.deletion if is_going else how.steps, world)
        if how.report is not None:
            await how.report(item, world, reports)
        return reports

    async def _observed(self, item: ItemT, why_not: str) -> WorldT:
        if why_not:
            raise StepFailed(why_not)
        async with asyncio.timeout(self._reconciliation.observe_within_s):
            return await self._reconciliation.observe(item)

    def _failure(self, place: Place, error: Exception) -> StepReport:
        if isinstance(error, EXPECTED):
            return StepReport(StepState.FAILED, str(error) or "not observed in time")
        log.error("defect", controller=self._name, object="/".join(place), exc_info=error)
        return StepReport(StepState.FAILED, f"a defect, see the log: {error!r}", is_defect=True)

    def _pause_s(self, place: Place, reports: Reports) -> float:
        failed = {name: each for name, each in reports.items() if each.state is StepState.FAILED}
        asked = [each.outcome.again_in_s for each in reports.values() if each.outcome.again_in_s is not None]
        if failed:
            return min([self._pause_after(place, failed), *asked])
        self._failures.pop(place, None)
        self._warnings.recovered("/".join(place))
        resync_s = self._resync_s * random.uniform(0.9, 1.1)  # noqa: S311 (spreads load)
        return min([resync_s, *asked])

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
