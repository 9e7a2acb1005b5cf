"""How long to wait before red-box is asked again, and when to tell the reader of the log."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

QUIET_TRIES = 3  # failures that nobody needs to hear of
LONGEST_PAUSE_S = 10.0


class Patience:
    """The pause after a failure grows, with jitter, up to ten seconds; the third in a row is told."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        """Without `say` nobody is told."""
        self._say = say
        self._tries = 0

    def wait(self, why: str, *, at_least: float = 0.0) -> None:
        """One more failure."""
        self._tries += 1
        if self._say and self._tries == QUIET_TRIES:
            self._say(f"waiting for red-box: {why}")
        pause = min(LONGEST_PAUSE_S, 0.1 * 2.0 ** min(self._tries, 10)) * random.uniform(0.5, 1.0)  # noqa: S311
        time.sleep(max(at_least, pause))

    def answered(self) -> None:
        """There was an answer: the next failure is a first one again."""
        self._tries = 0
