"""Details of statuses, which wait for the next change: one write for both.

A write of a status costs the API server and etcd 6 to 9 ms of CPU, and each watcher an event. Most changes of
a young job are details of the one before: its state and partition some milliseconds after its id, then
Slurm's reasons for the wait. Which changes are details is for the caller to decide.
"""

from __future__ import annotations

from collections.abc import Hashable

LONGEST_WAIT_S = 5.0


class WaitingDetails:
    """Until when the newest details of each object may wait."""

    def __init__(self) -> None:
        self._due: dict[Hashable, float] = {}

    def pause_s(self, key: Hashable, now: float, *, is_detail: bool) -> float:
        """Seconds that this change of the object may still wait; 0 where it is to be written now."""
        if is_detail:
            due = self._due.setdefault(key, now + LONGEST_WAIT_S)
            if 0 < due - now <= LONGEST_WAIT_S:  # more: the clock was set back
                return due - now
        self.forget(key)
        return 0.0

    def forget(self, key: Hashable) -> None:
        self._due.pop(key, None)
