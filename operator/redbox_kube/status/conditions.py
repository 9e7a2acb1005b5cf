"""Conditions that keep the time of their last change. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from redbox_kube.status.models import StatusPart

LONGEST_REASON, LONGEST_MESSAGE = 128, 4096
"""As the CRD has them: a row may have more."""


class ConditionStatus(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


STATUS_OF = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}


class StatusCondition(StatusPart):
    """Whether something holds, since when, and why."""

    type: str = Field(max_length=64)
    status: ConditionStatus
    reason: str = Field(max_length=128, description="One word for programs.")
    message: str = Field("", max_length=4096, description="What happened, and what to do.")
    last_transition_time: datetime = Field(description="When `status` last changed.")
    observed_generation: int | None = None


@dataclass(frozen=True, slots=True)
class NewCondition:
    """A condition as it is now, without the time of its last change."""

    type: str
    reason: str
    message: str | None = None
    holds: bool | None = field(kw_only=True)
    """None: unknown."""


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
    status = STATUS_OF[new.holds]
    since = before.last_transition_time if before and before.status is status else now
    return StatusCondition(
        type=str(new.type),
        status=status,
        reason=new.reason[:LONGEST_REASON],
        message=(new.message or "")[:LONGEST_MESSAGE],
        last_transition_time=since,
        observed_generation=generation,
    )
