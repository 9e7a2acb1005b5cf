"""How long statuses of SlurmJobs lag behind the rows of one red-box, for the metric and its alert.

A link ends when its SlurmCluster's spec changes. What no status shows by then still waits, so the times are
kept beside the links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set as AbstractSet

from redbox_api.feed import RowKey


class StatusLag:
    """When the oldest change of each row arrived that no status shows yet."""

    def __init__(self) -> None:
        self._arrived: dict[RowKey, float] = {}

    def rows(self) -> AbstractSet[RowKey]:
        """Those with a change that no status shows yet."""
        return self._arrived.keys()

    def begin(self, key: RowKey) -> None:
        """This row has changed."""
        self._arrived.setdefault(key, asyncio.get_running_loop().time())

    def end(self, key: RowKey) -> float | None:
        """A status shows the row now, or needs no change: how long after the oldest change of it, if any."""
        arrived = self._arrived.pop(key, None)
        return None if arrived is None else asyncio.get_running_loop().time() - arrived
