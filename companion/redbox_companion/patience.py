"""How long to wait for a red-box that does not answer, and when to tell the reader of the log."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET_TRIES = 3  # failures that nobody needs to hear of
LONGEST_PAUSE_S = 10.0


@dataclass
class Patience:
    """The wait after a failure grows, with jitter, up to ten seconds; the third failure in a row is told."""

    say: Callable[[str], None]
    tries: int = 0

    def __call__(self, why: str) -> float:
        """Count one more failure."""
        self.tries += 1
        if self.tries == QUIET_TRIES:
            self.say(f"red-box does not answer, trying on: {why}")
        return min(LONGEST_PAUSE_S, 0.2 * 2.0 ** min(self.tries, 10)) * random.uniform(0.5, 1.0)  # noqa: S311

    def answered(self) -> None:
        """There was an answer: the next failure is a first one again."""
        if self.tries >= QUIET_TRIES:
            self.say("red-box answers again")
        self.tries = 0
