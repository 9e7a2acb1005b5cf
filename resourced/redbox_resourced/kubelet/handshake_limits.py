"""Whose TLS handshake is under way, and who waits for that: few at once, in all and of one address.

From its first moment a handshake costs asyncio 300 KiB, whoever opened the connection and whether or not
anything is said on it. So a connection waits for its turn as a bare socket, which costs next to nothing, and
an address that opens many makes its own wait. Where all addresses together are too many, the one that came
first gives way: who means well is done within milliseconds, who says nothing is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

AT_ONCE = 128
AT_ONCE_OF_ONE_ADDRESS = 32
MOST_WAITING = 1024
Tasks = dict["asyncio.Task[object]", None]
"""In the order in which they came."""


@dataclass
class HandshakeLimits:
    """Those of one listener, each in a task of its own; the task that gives way is cancelled."""

    at_once: int = AT_ONCE
    at_once_of_one_address: int = AT_ONCE_OF_ONE_ADDRESS
    most_waiting: int = MOST_WAITING
    _under_way: Tasks = field(default_factory=dict)
    _waiting: Tasks = field(default_factory=dict)
    _shares: WeakValueDictionary[str, asyncio.Semaphore] = field(default_factory=WeakValueDictionary)
    """Of the addresses that have anything under way or waiting."""

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait until it is this address' turn; inside, the handshake is under way."""
        share = self._shares.setdefault(address, asyncio.Semaphore(self.at_once_of_one_address))
        with _among(self._waiting, self.most_waiting):
            await share.acquire()
        try:
            with _among(self._under_way, self.at_once):
                yield
        finally:
            share.release()


@contextmanager
def _among(tasks: Tasks, most: int) -> Iterator[None]:
    """This task is one of them; where they are too many, the first gives way."""
    if len(tasks) >= most:
        first = next(iter(tasks))
        del tasks[first]
        first.cancel()
    this = asyncio.current_task()
    if this is not None:
        tasks[this] = None
    try:
        yield
    finally:
        if this is not None:
            tasks.pop(this, None)
