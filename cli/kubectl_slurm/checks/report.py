"""A line of the report; one that is not well has its cure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Health(Enum):
    """How a line is marked."""

    WELL = ("ok", "green")
    NOT_WELL = ("!!", "red")
    UNKNOWN = ("??", "yellow")


@dataclass(frozen=True)
class Examined:
    """What was examined, what was found, and the cure."""

    health: Health
    what: str
    found: str
    cure: str = ""


def well(what: str, found: str) -> Examined:
    return Examined(Health.WELL, what, found)


def not_well(what: str, found: str, cure: str) -> Examined:
    """A submit fails, or something that is turned on does not work."""
    return Examined(Health.NOT_WELL, what, found, cure)


def unknown(what: str, found: str, cure: str = "") -> Examined:
    """A submit works without it."""
    return Examined(Health.UNKNOWN, what, found, cure)
