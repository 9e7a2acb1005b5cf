"""Events about changes of a SlurmJob's conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from redbox_kube.api.events import NORMAL, WARNING
from redbox_kube.status.conditions import ConditionEvent, ConditionStatus, StatusCondition
from redbox_operator.api.slurmjob_status import ConditionType

WAITING = "Waiting"
RESULTS_FAILED = "ResultsFailed"
SUSPENDED = "Suspended"
SUCCEEDED = "Succeeded"
UNFINISHED = "Unfinished"


def condition_events(
    before: Iterable[StatusCondition], after: Iterable[StatusCondition]
) -> list[ConditionEvent]:
    """The events about the changes from one to the other.

    Each is a write, and the conditions have their times: so an event reports what leaves the ordinary course
    of a job, and its return there. That a job is submitted, runs and succeeds is in the conditions alone.
    """
    previous = {condition.type: condition for condition in before}
    current = {condition.type: condition for condition in after}
    submitted = current.get(ConditionType.SUBMITTED)
    never_submitted = submitted is None or submitted.status is not ConditionStatus.TRUE
    events = []
    for condition in current.values():
        old = previous.get(condition.type)
        old_reason = old.reason if old else ""
        has_changed = old is None or (old.status, old.reason) != (condition.status, condition.reason)
        if has_changed and _is_news(condition, old_reason, never_submitted=never_submitted):
            message = condition.message or condition.reason
            events.append(ConditionEvent(_severity(condition), condition.reason, message, condition))
    return events


def _is_news(condition: StatusCondition, old_reason: str, *, never_submitted: bool) -> bool:
    """`old_reason` is that of the same condition before; empty where it is new."""
    holds, reason = condition.status is ConditionStatus.TRUE, condition.reason
    news = {
        ConditionType.SUBMITTED: old_reason not in {"", WAITING} if holds else reason != WAITING,
        ConditionType.RUNNING: (old_reason if holds else reason) == SUSPENDED,
        ConditionType.HELD: holds or reason == "Released",
        ConditionType.SYNCED: not holds,
        # Where it was never submitted, an event of Submitted has the reason.
        ConditionType.FINISHED: reason != SUCCEEDED and not never_submitted
        if holds
        else reason != UNFINISHED,
        ConditionType.RESULTS_COLLECTED: reason != WAITING,
    }
    return news.get(ConditionType(condition.type), False)


def _severity(condition: StatusCondition) -> str:
    holds, reason = condition.status is ConditionStatus.TRUE, condition.reason
    is_warning = {
        ConditionType.SUBMITTED: not holds,
        ConditionType.SYNCED: True,
        ConditionType.FINISHED: reason not in {SUCCEEDED, "Cancelling"},
        ConditionType.RESULTS_COLLECTED: reason == RESULTS_FAILED,
    }
    return WARNING if is_warning.get(ConditionType(condition.type), False) else NORMAL
