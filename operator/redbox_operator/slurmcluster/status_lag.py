"""How long statuses of SlurmJobs lag behind the rows of one red-box, for the metric and its alert.

A link ends when its SlurmCluster's spec changes. What no status shows by then still does not, so the times are
kept beside the links.
"""

from __future__ import annotations

import asyncio

from redbox_api.feed import RowKey


class StatusLag:
    """When the oldest change of each row arrived that no status shows yet."""

    def __init__(self) -> None:
        self._arrived: dict[RowKey, float] = {}

    def begin(self, key: RowKey) -> None:
        """This row has changed."""
        self._arrived.setdefault(key, asyncio.get_running_loop().time())

    def end(self, key: RowKey) -> float | None:
        """How long ago the row's oldest change arrived, if any is left: a status shows it now, or needs none."""
        arrived = self._arrived.pop(key, None)
        return None if arrived is None else asyncio.get_running_loop().time() - arrived
