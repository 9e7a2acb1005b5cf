"""Feeds: list, watch from the list's revision, resume where the watch ended, and retry, until cancelled.

TooOld (410) makes the next attempt list again, and counts as a failure if it did so just before. An event of
type `error` means that red-box drops this watch, for instance because its reader is too slow: the watch then
ends, and resumes where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum, auto
from typing import Generic, NamedTuple, NoReturn, TypeVar

from redbox_api.bodies import UNMETERED
from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError, TooOld, Unreachable
from redbox_api.limits.time_share import TimeShare
from redbox_api.models import FINAL_PHASES, Job, PartitionEvent, Phase, WatchEvent
from redbox_shared.backoff import Backoff

ACTIVE_PHASES = tuple(phase.value for phase in Phase if phase not in FINAL_PHASES)
PAGE_ITEMS = 500
LIST_WITHIN_S = 300.0
"""For all pages: a server may have another one without end."""
EventT = TypeVar("EventT", bound=WatchEvent | PartitionEvent)


class RowKey(NamedTuple):
    """One attempt of one owner's job: keys alone can be chosen by anybody."""

    key: str
    attempt: int
    namespace: str
    account: str

    @classmethod
    def of(cls, job: Job) -> RowKey:
        return cls(job.key, job.attempt, job.owner.namespace, job.owner.account)


class Resume(Enum):
    """After which ends a watch resumes at its last revision; after the others it lists again."""

    ALWAYS = auto()
    AFTER_CLEAN_END = auto()
    """A list shows at once that red-box is back; the first bookmark of a watch comes after ten seconds."""
    NEVER = auto()


class Feed(Generic[EventT]):
    """One list and watch, repeated until cancelled."""

    def __init__(
        self,
        list_all: Callable[[], Awaitable[str]],
        watch: Callable[[str], AsyncIterator[EventT]],
        on_event: Callable[[EventT], None],
        on_failure: Callable[[str], None],
        *,
        backoff: Backoff,
        retry_on: tuple[type[Exception], ...] = (),
        resume: Resume = Resume.ALWAYS,
        share: TimeShare = UNMETERED,
    ) -> None:
        """`list_all` returns the revision to watch from; `retry_on` are errors besides those of red-box.

        What `on_event` does is charged to `share`.
        """
        self._list_all = list_all
        self._watch = watch
        self._on_event = on_event
        self._on_failure = on_failure
        self._backoff = backoff
        self._retry_on: tuple[type[Exception], ...] = (RedboxError, TimeoutError, *retry_on)
        self._resume = resume
        self._share = share
        self._revision: str | None = None
        self._expired = False  # the last watch was refused as too old, before its first event
        self._failures = 0
        self._attempt: asyncio.Timeout | None = None

    async def run(self) -> NoReturn:
        """List and watch until cancelled; an error that is not to be retried ends it."""
        while True:
            try:
                async with asyncio.timeout(None) as self._attempt:
                    await self._list_and_watch()
            except TooOld as error:
                self._revision = None
                if self._expired:
                    self._failed(error)
                self._expired = True
            except self._retry_on as error:
                if self._resume is not Resume.ALWAYS:
                    self._revision = None
                self._failed(error)
            else:
                self._failures = 0
                if self._resume is Resume.NEVER:
                    self._revision = None
            self._attempt = None
            await asyncio.sleep(self._backoff.pause_s(self._failures))

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if not (self._attempt and self._attempt.expired()):
            self._on_failure(str(error) or type(error).__name__)

    def restart(self) -> None:
        """End the current attempt: another request failed, so that this connection may be dead as well."""
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(asyncio.get_running_loop().time())

    async def _list_and_watch(self) -> None:
        if self._revision is None:
            self._revision = await _in_time(self._list_all)
        async for event in self._watch(self._revision):
            with self._share.charged():
                self._on_event(event)
            self._expired = False
            if event.type != "error":
                self._revision = event.revision
                self._failures = 0
            del event  # a large one is not held until the next one comes


async def _in_time(list_all: Callable[[], Awaitable[str]]) -> str:
    deadline = asyncio.timeout(LIST_WITHIN_S)
    try:
        async with deadline:
            return await list_all()
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise Unreachable(f"its list had no end within {LIST_WITHIN_S:g} s") from error


async def list_active_jobs(
    client: RedboxClient, take: Callable[[Job], None], *, page_items: int = PAGE_ITEMS
) -> str:
    """Pass each job that is not final to `take`; returns the revision from which a watch misses nothing."""
    revision = ""
    async for page in client.list_jobs(limit=page_items, phase=ACTIVE_PHASES):
        for job in page.items:
            with client.share.charged():
                take(job)
            await client.share.rest()
        revision = revision or page.revision
        del page  # nor is this while the next one is read
    return revision
