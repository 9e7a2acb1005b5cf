"""The pause before a request is repeated, and the line in the log that says why the companion waits."""

from __future__ import annotations

import time

from redbox_shared.backoff import Backoff

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BACKOFF = Backoff(0.2, 10.0)
REPORTED_FAILURE = 3  # in a row: earlier ones are usually over by then


class Retrier:
    """Waits after each failure; the third in a row is reported."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        """Without `say` nothing is reported."""
        self._say = say
        self._failures = 0

    def wait(self, why: str, *, at_least: float = 0.0) -> None:
        self._failures += 1
        if self._say and self._failures == REPORTED_FAILURE:
            self._say(f"waiting for red-box: {why}")
        time.sleep(max(at_least, BACKOFF.pause_s(self._failures)))

    def reset(self) -> None:
        self._failures = 0
