"""The addresses of Slurm's nodes, as the login node resolves the nodes' names.

A pod's runner reports the address of its node, but the runner is its user's: a Service would lead to whatever
address it names, a foreign pod's for instance.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import Any

from redbox.core.clock import Clock, with_deadline

KEPT_S = 600.0
FAILED_S = 15.0
RESOLVE_S = 2.0
MOST = 20_000  # names that are kept
AT_ONCE = 4
THREADS = ThreadPoolExecutor(AT_ONCE, "resolver")
"""A resolver that hangs keeps its thread past the deadline: here it takes none of those that others need."""
Resolution = Callable[[str], Coroutine[Any, Any, tuple[str, ...]]]


async def resolve_host(name: str) -> tuple[str, ...]:
    """All its addresses, but for those of the login node to itself; raises OSError."""
    resolve = partial(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM)
    rows = await asyncio.get_running_loop().run_in_executor(THREADS, resolve)
    addresses = dict.fromkeys(str(row[4][0]) for row in rows)
    return tuple(address for address in addresses if not ip_address(address).is_loopback)


class NodeAddresses:
    """Keeps what was resolved."""

    def __init__(self, clock: Clock, resolve: Resolution = resolve_host) -> None:
        self._clock = clock
        self._resolve = resolve
        self._kept: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def of(self, node: str) -> tuple[str, ...]:
        """None of a node whose name is not resolved."""
        expires, found = self._kept.get(node, (float("-inf"), ()))
        if expires > self._clock.monotonic():
            return found
        try:
            async with self._at_once:
                found = await with_deadline(self._clock, RESOLVE_S, self._resolve(node))
        except (OSError, ValueError):  # TimeoutError is an OSError; a name may be no host's at all
            found = ()
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[node] = self._clock.monotonic() + (KEPT_S if found else FAILED_S), found
        return found
