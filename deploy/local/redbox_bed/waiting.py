"""Waiting for something to become true, with a deadline, and saying what did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from redbox_bed.errors import DaemonError

_POLL_SECONDS = 0.05


def wait_until(
    condition: Callable[[], bool],
    seconds: float,
    otherwise: str,
    *,
    log: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the condition holds; DaemonError saying `otherwise` if it does not in time."""
    deadline = clock() + seconds
    while not condition():
        if clock() > deadline:
            raise DaemonError(f"{otherwise} within {seconds:.0f} s", log=log)
        sleep(_POLL_SECONDS)
