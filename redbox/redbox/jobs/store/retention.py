"""Retention: final jobs are deleted after thirty days, tombstones after the longest token's life."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import structlog

from redbox.core.clock import Clock
from redbox.core.domain import JobKey
from redbox.jobs.errors import JournalError
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.record.record import Stage, lineage
from redbox.jobs.settings import JobsSettings
from redbox.jobs.store.record_store import Change, RecordStore

log = structlog.get_logger(__name__)

AT_ONCE = 500  # fewer than the deletions that watches remember


def is_expired(record: RecordSummary, now: datetime, keep_s: float) -> bool:
    """Final for so long, or an intent that never became anything."""
    if record.watched and record.stage is not Stage.UNCONFIRMED:
        return False
    return (now - record.settled_at).total_seconds() > keep_s


class Retention:
    """Removes from the record store what has been kept long enough."""

    def __init__(self, store: RecordStore, clock: Clock, settings: JobsSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings

    async def run(self) -> None:
        """Remove it at intervals, until cancelled."""
        while True:
            await self._clock.sleep(self._settings.retention_every_s)
            try:
                await self.remove_expired()
            except JournalError as fault:
                log.warning("expired jobs not removed from the journal: %s", fault)
            except Exception:  # a fault of ours over one odd record must not end the server
                log.exception("expired jobs not removed from the journal")

    async def remove_expired(self) -> None:
        """Forget expired jobs and tombstones, a limited number at a time."""
        now, keep_s = self._clock.now(), self._settings.keep_final_s
        expired = [record.key for record in self._store.index if is_expired(record, now, keep_s)]
        for key in expired[:AT_ONCE]:
            await self._forget(key)
        old = self._store.tombstones.older_than(now, self._settings.keep_tombstones_s)
        for stone in old[:AT_ONCE]:
            await self._store.change([lineage(stone.owner, stone.key)], partial(Change, lift=(stone,)))

    async def _forget(self, key: JobKey) -> None:
        def decide() -> Change:
            record = self._store.index.get(key)
            expired = record is not None and is_expired(
                record, self._clock.now(), self._settings.keep_final_s
            )
            return Change(forget=(key,)) if expired else Change()

        await self._store.change([lineage(key.owner, key.key)], decide)
