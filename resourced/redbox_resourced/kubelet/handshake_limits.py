"""Bounds on TLS handshakes in progress: in all, and for each client address.

From its first moment a handshake costs asyncio 300 KiB, whether or not the client ever sends a byte. So a
connection waits for its slot as a bare socket, which costs next to nothing, and an address that opens many
connections delays only its own. Where all addresses together exceed the bound, the oldest handshake is
cancelled: an honest client finishes within milliseconds, a silent one does not. The same holds of connections
without a request: each user of the cluster may have a certificate with which a handshake succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from redbox_shared.keyed_semaphores import KeyedSemaphores

AT_ONCE = 128
AT_ONCE_PER_ADDRESS = 32
MAX_WAITING = 1024
Tasks = dict["asyncio.Task[object]", None]
"""In the order of their arrival."""


@dataclass
class HandshakeLimits:
    """For one listener; each handshake runs in a task of its own, which is cancelled to make room."""

    at_once: int = AT_ONCE
    at_once_per_address: int = AT_ONCE_PER_ADDRESS
    max_waiting: int = MAX_WAITING
    _in_progress: Tasks = field(default_factory=dict)
    _waiting: Tasks = field(default_factory=dict)
    _silent: Tasks = field(default_factory=dict)
    _per_address: KeyedSemaphores[str] = field(init=False)
    """For addresses that have a handshake in progress or waiting."""

    def __post_init__(self) -> None:
        self._per_address = KeyedSemaphores(self.at_once_per_address)

    @asynccontextmanager
    async def slot(self, address: str) -> AsyncIterator[None]:
        """Wait for a slot of this address, and hold it during the handshake."""
        slots = self._per_address.of(address)
        with _registered(self._waiting, self.max_waiting):
            await slots.acquire()
        try:
            with _registered(self._in_progress, self.at_once):
                yield
        finally:
            slots.release()

    def silent(self) -> AbstractContextManager[None]:
        """Hold a place of those whose handshake is over and that have sent no request yet."""
        return _registered(self._silent, self.at_once)


@contextmanager
def _registered(tasks: Tasks, limit: int) -> Iterator[None]:
    """Add the current task; at the limit, the oldest task is cancelled."""
    if len(tasks) >= limit:
        oldest = next(iter(tasks))
        del tasks[oldest]
        oldest.cancel()
    task = asyncio.current_task()
    if task is not None:
        tasks[task] = None
    try:
        yield
    finally:
        if task is not None:
            tasks.pop(task, None)
