"""What an error means and what to do about it, in words that fit every case of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Explanation:
    """`cure` names who acts, unless that is the job's user."""

    cause: str
    cure: str


@dataclass(frozen=True)
class ExplainedText:
    """Of an error that has no reason: how its text is recognized, and how a page shows it."""

    pattern: str
    shown: str
    explanation: Explanation


def explanation_of(text: str, explained: Sequence[ExplainedText]) -> Explanation | None:
    """Of the first that matches."""
    return next((each.explanation for each in explained if re.search(each.pattern, text)), None)
