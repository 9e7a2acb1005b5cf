"""The report of a reconciliation: one write of the status, and events about the steps that changed.

The status is written whole, by server-side apply as its only owner, and only if anything in it differs from
what was written last: the watch may not have shown that yet. Each step has a condition of its name; the
condition `Observed` is there only while no step can run. An event says that a step has failed, that it is
done after all, or what it did; repeats are one event, whose count grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from redbox_kube.api.events import NORMAL, WARNING, Event
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import Kind
from redbox_kube.controller.kube_object import ConditionedStatus, KubeObject
from redbox_kube.controller.steps import Reports, StepReport, StepState, conditions_of_steps
from redbox_kube.runtime.clock import now
from redbox_kube.status.conditions import NewCondition, StatusCondition, conditions_of
from redbox_kube.status.status_writer import StatusWriter

WorldT_contra = TypeVar("WorldT_contra", contravariant=True)
StatusVerdict = tuple[ConditionedStatus, Sequence[NewCondition]]
"""The status without conditions, and the conditions beside those of the steps."""
StatusOf = Callable[[WorldT_contra, Reports], StatusVerdict]
"""Pure."""
OBSERVED, READY = "Observed", "Ready"


@dataclass
class _Written:
    """The status that was written last to an object, and those that the watch may still show instead."""

    uid: str
    newest: ConditionedStatus
    replaced: list[ConditionedStatus] = field(default_factory=list)


class StatusReporter(Generic[WorldT_contra]):
    """Writes the status of objects of one kind."""

    def __init__(
        self,
        writer: StatusWriter,
        kind: Kind,
        status_of: StatusOf[WorldT_contra],
        *,
        clock: Callable[[], datetime] = now,
    ) -> None:
        self._writer = writer
        self._kind = kind
        self._status_of = status_of
        self._clock = clock
        self._written: dict[Place, _Written] = {}

    async def __call__(self, item: KubeObject, world: WorldT_contra, reports: Reports) -> None:
        before = self._newest(item)
        status, own = self._status_of(world, reports)
        new = [*own, *conditions_of_steps(reports)]
        conditions = conditions_of(before.conditions, new, self._clock(), item.generation)
        after = status.model_copy(update={"conditions": conditions, "observed_generation": item.generation})
        await self._report(item, before, after, reports)

    async def not_observed(self, item: KubeObject, why: str) -> None:
        """Keep the status as it is, and say why nobody knows whether it is still true."""
        before = self._newest(item)
        reports = {OBSERVED: StepReport(StepState.FAILED, why)}
        new = conditions_of_steps(reports)
        if any(condition.type == READY for condition in before.conditions):
            new.append(NewCondition(READY, "NotObserved", why, holds=None))
        changed = conditions_of(before.conditions, new, self._clock(), item.generation)
        conditions = {condition.type: condition for condition in [*before.conditions, *changed]}
        after = before.model_copy(update={"conditions": list(conditions.values())})
        await self._report(item, before, after, reports)

    def forget(self, place: Place) -> None:
        """The object is gone."""
        self._written.pop(place, None)

    def _newest(self, item: KubeObject) -> ConditionedStatus:
        """The status as it is stored: the watch may show an earlier one, or a later one of somebody else."""
        written = self._written.get(item.place)
        if written is None or written.uid != item.uid or item.status not in written.replaced:
            self.forget(item.place)
            return item.status
        return written.newest

    async def _report(
        self, item: KubeObject, before: ConditionedStatus, after: ConditionedStatus, reports: Reports
    ) -> None:
        where = item.path(self._kind)
        if after != before:
            body = after.model_dump(mode="json", by_alias=True, exclude_none=True)
            if await self._writer.status(where, item.uid, body) is None:
                return  # gone
            written = self._written.setdefault(item.place, _Written(item.uid, after))
            written.newest = after
            written.replaced.append(before)
        component = self._writer.objects.field_manager
        for reason, severity, message in changes_of(before.conditions, reports):
            change = f"{reason}|{message}"
            await self._writer.publish_event(
                Event(
                    where, item.uid, change, severity, reason, message, "Reconcile", component, repeats=True
                )
            )


def changes_of(before: Iterable[StatusCondition], reports: Reports) -> list[tuple[str, str, str]]:
    """Reason, severity and message of each event."""
    reasons: Mapping[str, str] = {condition.type: condition.reason for condition in before}
    found = []
    for name, report in reports.items():
        had_failed = reasons.get(name) == StepState.FAILED
        if report.state is StepState.FAILED and not had_failed:
            found.append((f"{name}Failed", WARNING, report.message))
        elif report.state is StepState.DONE and had_failed:
            found.append((f"{name}Recovered", NORMAL, report.outcome.did or f"{name} is done now"))
        elif report.outcome.did:
            found.append((name, NORMAL, report.outcome.did))
    return found
