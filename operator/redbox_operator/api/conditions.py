"""Conditions that keep the time of their last change, and the events that tell of changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from redbox_kube.api.events import NORMAL, WARNING
from redbox_operator.api.slurmjob_status import ConditionStatus, ConditionType, StatusCondition

WAITING = "Waiting"
RESULTS_FAILED = "ResultsFailed"


@dataclass(frozen=True, slots=True)
class NewCondition:
    """What is to be said of one thing now."""

    type: StrEnum
    holds: bool
    reason: str
    message: str = ""

    @property
    def status(self) -> ConditionStatus:
        return ConditionStatus.TRUE if self.holds else ConditionStatus.FALSE


@dataclass(frozen=True, slots=True)
class ConditionEvent:
    """An event that is to be written: once, for one change of one condition."""

    severity: str
    reason: str
    message: str
    condition: StatusCondition


def conditions_of(
    before: Iterable[StatusCondition], said: Iterable[NewCondition], now: datetime, generation: int | None
) -> list[StatusCondition]:
    """What is said, each with the time since when it has been so."""
    known = {condition.type: condition for condition in before}
    return [_condition(one, known.get(one.type), now, generation) for one in said]


def _condition(
    said: NewCondition, before: StatusCondition | None, now: datetime, generation: int | None
) -> StatusCondition:
    since = before.last_transition_time if before and before.status is said.status else now
    return StatusCondition(
        type=said.type.value,
        status=said.status,
        reason=said.reason,
        message=said.message[:4096],
        last_transition_time=since,
        observed_generation=generation,
    )


def condition_events(
    before: Iterable[StatusCondition], after: Iterable[StatusCondition]
) -> list[ConditionEvent]:
    """The events that the change from one to the other is worth."""
    known = {condition.type: (condition.status, condition.reason) for condition in before}
    changed = {one.type: one for one in after if known.get(one.type) != (one.status, one.reason)}
    submitted = {one.type: one for one in after}.get(ConditionType.SUBMITTED)
    never_submitted = submitted is None or submitted.status is not ConditionStatus.TRUE
    told = []
    for condition in changed.values():
        told += _telling(condition, never_submitted=never_submitted)
    return told


def _telling(condition: StatusCondition, *, never_submitted: bool) -> list[ConditionEvent]:
    holds, reason = condition.status is ConditionStatus.TRUE, condition.reason
    severity = NORMAL
    match condition.type:
        case ConditionType.SUBMITTED:
            worth = holds or reason != WAITING
            severity = NORMAL if holds else WARNING
        case ConditionType.RUNNING:
            worth = holds or reason == "Suspended"
        case ConditionType.HELD:
            worth = holds or reason == "Released"
        case ConditionType.SYNCED:
            worth, severity = not holds, WARNING
        case ConditionType.FINISHED:
            # Why it was never submitted has been told already.
            worth = (holds and not never_submitted) or (not holds and reason != "Unfinished")
            severity = NORMAL if reason in {"Succeeded", "Cancelling"} else WARNING
        case ConditionType.RESULTS_COLLECTED:
            worth = reason != WAITING
            severity = WARNING if reason == RESULTS_FAILED else NORMAL
        case _:
            worth = False
    return [ConditionEvent(severity, reason, condition.message or reason, condition)] if worth else []
