"""A line of the report; one that is not well has its cure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Health(Enum):
    """How a line is marked."""

    OK = ("ok", "green")
    FAILED = ("!!", "red")
    UNKNOWN = ("??", "yellow")


@dataclass(frozen=True)
class CheckLine:
    """What was examined, what was found, and the cure."""

    health: Health
    what: str
    found: str
    cure: str = ""


def passed(what: str, found: str) -> CheckLine:
    return CheckLine(Health.OK, what, found)


def failed(what: str, found: str, cure: str) -> CheckLine:
    """A submit fails, or something that is turned on does not work."""
    return CheckLine(Health.FAILED, what, found, cure)


def unknown(what: str, found: str, cure: str = "") -> CheckLine:
    """A submit works without it."""
    return CheckLine(Health.UNKNOWN, what, found, cure)
