"""Waiting for something to become true, with a deadline, and saying what did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from redbox_bed.core.errors import DaemonError
from redbox_bed.hosts.host import Daemon, Host

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 0.5
_PAUSE_SHARE = 0.1
"""Of the time waited so far: most conditions are commands, which take CPU from what is waited for."""


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
    began = clock()
    while not condition():
        waited = clock() - began
        if waited > seconds:
            raise DaemonError(f"{otherwise} within {seconds:.0f} s", log=log)
        sleep(min(max(_SHORTEST_PAUSE_S, waited * _PAUSE_SHARE), _LONGEST_PAUSE_S))


def wait_until_serves(host: Host, daemon: Daemon, serves: Callable[[], bool], seconds: float) -> None:
    """Return when a daemon serves, be it one of a broken-off `up`; DaemonError at once if it has ended."""
    log = host.log_path(daemon.name)

    def serves_or_ended() -> bool:
        if not host.running(daemon.name):
            raise DaemonError(f"{daemon.name} on {host.name} ended: {_last_line(log)}", log=log)
        return serves()

    wait_until(serves_or_ended, seconds, f"{daemon.name} on {host.name} did not begin to serve", log=log)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it said nothing")
