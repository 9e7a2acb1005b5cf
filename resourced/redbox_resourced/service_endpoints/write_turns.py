"""The turns of a namespace's pods to be read and written, at a pace.

Users decide how often their pods and Services change, and each change is requests for each of them. A pod
that comes too early waits, and what happens to it meanwhile costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redbox_kube.api.informer import Place
from redbox_kube.runtime.paces import Pace


class WriteTurns:
    """One for each reconciliation, its first write included, and one for each further write."""

    def __init__(self, pace: Pace, resume: Callable[[Place], None]) -> None:
        """`resume` is called with a pod whose turn has come."""
        self._pace = pace
        self._resume = resume
        self._granted: set[Place] = set()
        self._waiting: set[Place] = set()

    def begin(self, pod: Place) -> bool:
        """Whether it may be reconciled now; it is resumed otherwise."""
        if pod in self._waiting:
            return False
        if pod not in self._granted and not self._take(pod):
            return False
        self._granted.add(pod)
        return True

    def take(self, pod: Place) -> bool:
        """Whether it may write now; it is resumed otherwise."""
        if pod in self._granted:
            self._granted.discard(pod)
            return True
        return self._take(pod)

    def end(self, pod: Place) -> None:
        self._granted.discard(pod)

    def _take(self, pod: Place) -> bool:
        namespace = pod[0]
        if not self._pace.take(namespace):
            return True
        self._waiting.add(pod)
        asyncio.get_running_loop().call_later(self._pace.reserve(namespace), self._grant, pod)
        return False

    def _grant(self, pod: Place) -> None:
        self._waiting.discard(pod)
        self._granted.add(pod)
        self._resume(pod)
