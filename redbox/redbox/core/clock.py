"""What time it is, passed in so that tests need not wait.

Wall time is compared with times that others wrote down (a token's `exp`); monotonic time measures how long
ago something happened here.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks, because they answer two questions."""

    def now(self) -> datetime:
        """Wall time, with its zone."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
