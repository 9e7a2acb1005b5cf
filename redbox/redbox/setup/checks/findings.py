"""Findings of `redbox check`: each problem, with its cure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """FAULT: red-box does not work, or allows more than it should."""

    NOTE = 1
    WARNING = 2
    FAULT = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, and what to do about it."""

    level: Level
    what: str
    cure: str = ""

    def __str__(self) -> str:
        cure = textwrap.indent(self.cure, "    ")
        return "\n".join(filter(None, [f"{self.level.name.lower()}: {self.what}", cure]))


def fault(what: str, cure: str) -> Finding:
    return Finding(Level.FAULT, what, cure)


def warning(what: str, cure: str) -> Finding:
    return Finding(Level.WARNING, what, cure)


def note(what: str, cure: str = "") -> Finding:
    return Finding(Level.NOTE, what, cure)


def exit_status(findings: Iterable[Finding]) -> int:
    return int(any(finding.level is Level.FAULT for finding in findings))
