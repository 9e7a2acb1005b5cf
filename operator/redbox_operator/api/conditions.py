"""Conditions that keep the time of their last change, and events about such changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from redbox_kube.api.events import NORMAL, WARNING
from redbox_operator.api.slurmjob_status import ConditionStatus, ConditionType, StatusCondition

WAITING = "Waiting"
RESULTS_FAILED = "ResultsFailed"


@dataclass(frozen=True, slots=True)
class NewCondition:
    """A condition as it is now, without the time of its last change."""

    type: StrEnum
    reason: str
    message: str | None = None
    holds: bool = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ConditionEvent:
    """An event to be created: one for each change of a condition."""

    severity: str
    reason: str
    message: str
    condition: StatusCondition


def conditions_of(
    before: Iterable[StatusCondition], new: Iterable[NewCondition], now: datetime, generation: int | None
) -> list[StatusCondition]:
    """The new conditions, each with the time since when its status holds."""
    previous = {condition.type: condition for condition in before}
    return [_condition(condition, previous.get(condition.type), now, generation) for condition in new]


def _condition(
    new: NewCondition, before: StatusCondition | None, now: datetime, generation: int | None
) -> StatusCondition:
    status = ConditionStatus.TRUE if new.holds else ConditionStatus.FALSE
    since = before.last_transition_time if before and before.status is status else now
    return StatusCondition(
        type=new.type.value,
        status=status,
        reason=new.reason,
        message=(new.message or "")[:4096],
        last_transition_time=since,
        observed_generation=generation,
    )


def condition_events(
    before: Iterable[StatusCondition], after: Iterable[StatusCondition]
) -> list[ConditionEvent]:
    """The events that report the changes from one to the other."""
    previous = {condition.type: (condition.status, condition.reason) for condition in before}
    current = {condition.type: condition for condition in after}
    submitted = current.get(ConditionType.SUBMITTED)
    never_submitted = submitted is None or submitted.status is not ConditionStatus.TRUE
    return [
        event
        for condition in current.values()
        if previous.get(condition.type) != (condition.status, condition.reason)
        for event in _events_of(condition, never_submitted=never_submitted)
    ]


def _events_of(condition: StatusCondition, *, never_submitted: bool) -> list[ConditionEvent]:
    holds, reason = condition.status is ConditionStatus.TRUE, condition.reason
    severity = NORMAL
    match condition.type:
        case ConditionType.SUBMITTED:
            is_news = holds or reason != WAITING
            severity = NORMAL if holds else WARNING
        case ConditionType.RUNNING:
            is_news = holds or reason == "Suspended"
        case ConditionType.HELD:
            is_news = holds or reason == "Released"
        case ConditionType.SYNCED:
            is_news, severity = not holds, WARNING
        case ConditionType.FINISHED:
            # An event of Submitted has the reason why it was never submitted.
            is_news = (holds and not never_submitted) or (not holds and reason != "Unfinished")
            severity = NORMAL if reason in {"Succeeded", "Cancelling"} else WARNING
        case ConditionType.RESULTS_COLLECTED:
            is_news = reason != WAITING
            severity = WARNING if reason == RESULTS_FAILED else NORMAL
        case _:
            is_news = False
    return [ConditionEvent(severity, reason, condition.message or reason, condition)] if is_news else []
