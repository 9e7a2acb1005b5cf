"""Whose work it is, and whose turn: fair queueing of the event loop's time.

Work belongs to the share of the caller that causes it; work of no caller in particular is red-box's own.
Shares take turns by start-time fair queueing: the one that has used least is next. So a caller that asks for
much waits for itself and not for others, and no time stays unused while anybody waits. `server.fair_loop`
runs the work; `callers` and `agents` say whose it is.

Connections whose callers are not known yet have one share together, in which their addresses take turns: a
client that connects from many addresses gains nothing. Accepting has a turn of its own, since what is not
accepted yet cannot be distinguished from a flood.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from redbox_shared.keyed_semaphores import KeyedSemaphores

CREDIT_S = 0.05
"""Who has used nothing for a while goes first for so long: a request with its answer, not a flood."""

Work = TypeVar("Work")
Result = TypeVar("Result")


class ShareKind(StrEnum):
    """`caller`: authenticated; `address`: not yet; `accept`: arrivals; `arrays`: large ones of any caller."""

    CALLER = "caller"
    ADDRESS = "address"
    ACCEPT = "accept"
    ARRAYS = "arrays"


@dataclass(eq=False, slots=True, weakref_slot=True)
class Share:
    """The part of one caller, or of an address whose callers are not known yet."""

    kind: ShareKind
    name: str
    work: deque[Any] = field(default_factory=deque)
    is_waiting: bool = False
    begins_at: float | None = None
    """The virtual time at which its next work begins; None: it has had none."""
    waits_since: float = 0.0

    @property
    def share(self) -> Share:
        return self


class HasShare(Protocol):
    """What work is done for. The share of a connection changes once its caller is known."""

    @property
    def share(self) -> Share: ...


working_for: ContextVar[HasShare | None] = ContextVar("working_for", default=None)
"""What the running code works for; its tasks and callbacks inherit it. None: red-box itself."""


@contextmanager
def work_for(owner: HasShare | None) -> Iterator[None]:
    """Tasks and readers that the block creates work for this owner."""
    token = working_for.set(owner)
    try:
        yield
    finally:
        working_for.reset(token)


async def as_own_work(work: Awaitable[Result]) -> Result:
    """Do in red-box's own time what several callers wait for: not in the turns of the first of them."""
    if working_for.get() is None:
        return await work
    with work_for(None):
        task = asyncio.ensure_future(work)
    return await task


_threads = KeyedSemaphores[str](1)


async def in_thread_of(caller: str, work: Callable[[], Result]) -> Result:
    """In a thread, one at a time for each caller: each takes the interpreter's lock from the event loop."""
    async with _threads.of(caller):
        return await asyncio.to_thread(work)


class Shares:
    """The shares that are in use, one of each name."""

    def __init__(self) -> None:
        self._in_use: WeakValueDictionary[tuple[ShareKind, str], Share] = WeakValueDictionary()

    def of(self, kind: ShareKind, name: str) -> Share:
        share = self._in_use.get((kind, name))
        if share is None:
            share = self._in_use[kind, name] = Share(kind, name)
        return share


class _Order:
    """The shares that wait, by the virtual time at which their next work begins."""

    def __init__(self, credit_s: float) -> None:
        self._credit_s = credit_s
        self._now = 0.0
        self._heap: list[tuple[float, int, Share]] = []
        self._numbers = itertools.count()  # shares of the same time: the one that waits longest

    def __len__(self) -> int:
        return len(self._heap)

    def enter(self, share: Share) -> None:
        """It has work again: time that it did not use before is lost, but for its credit."""
        earliest = self._now - self._credit_s
        share.begins_at = self._now if share.begins_at is None else max(share.begins_at, earliest)
        share.is_waiting = True
        self._push(share, share.begins_at)

    def next(self) -> Share:
        begins_at, _, share = heapq.heappop(self._heap)
        self._now = max(self._now, begins_at)
        return share

    def used(self, share: Share, seconds: float, *, has_more: bool) -> None:
        assert share.begins_at is not None  # noqa: S101 # it has entered
        share.begins_at += seconds
        share.is_waiting = has_more
        if has_more:
            self._push(share, share.begins_at)

    def _push(self, share: Share, begins_at: float) -> None:
        heapq.heappush(self._heap, (begins_at, next(self._numbers), share))


class TurnQueue(Generic[Work]):
    """The work of all shares."""

    def __init__(self) -> None:
        self._order = _Order(CREDIT_S)
        self._strangers = _Order(credit_s=0.0)
        self._all_strangers = Share(ShareKind.ADDRESS, "all")
        self.waited_s = dict.fromkeys(ShareKind, 0.0)
        self.used_s = dict.fromkeys(ShareKind, 0.0)
        self.recent_s: defaultdict[Share, float] = defaultdict(float)
        """What each share has used since its reader has cleared it."""

    def __bool__(self) -> bool:
        return bool(self._order)

    def add(self, share: Share, work: Work, now: float) -> None:
        share.work.append(work)
        if share.is_waiting:
            return
        share.waits_since = now
        if share.kind is not ShareKind.ADDRESS:
            self._order.enter(share)
            return
        self._strangers.enter(share)
        if not self._all_strangers.is_waiting:
            self._order.enter(self._all_strangers)

    def take(self, now: float) -> tuple[Share, Work]:
        """The next work; when it is done, `used` must follow."""
        share = self._order.next()
        if share is self._all_strangers:
            share = self._strangers.next()
        self.waited_s[share.kind] += now - share.waits_since
        return share, share.work.popleft()

    def used(self, share: Share, seconds: float, now: float) -> None:
        """The work that was taken last has taken so long."""
        self.used_s[share.kind] += seconds
        self.recent_s[share] += seconds
        share.waits_since = now
        has_more = bool(share.work)
        if share.kind is not ShareKind.ADDRESS:
            self._order.used(share, seconds, has_more=has_more)
        else:
            self._strangers.used(share, seconds, has_more=has_more)
            self._order.used(self._all_strangers, seconds, has_more=bool(self._strangers))
