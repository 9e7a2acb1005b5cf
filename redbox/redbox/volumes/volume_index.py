"""All recorded volumes, by handle: in memory, after they are on the disk."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from redbox.jobs.errors import JournalError
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.sqlite import JournalBatch
from redbox.jobs.store.volume_rows import VolumeRecord

KEPT_AFTER_DELETION = timedelta(days=31)


class VolumeIndex:
    """The volumes of the journal; a change can be seen once it is on the disk."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._records = {record.handle: record for record in journal.volumes}

    def get(self, handle: str) -> VolumeRecord | None:
        return self._records.get(handle)

    @property
    def count(self) -> int:
        """Of all folders that were not deleted."""
        return sum(record.deleted_at is None for record in self._records.values())

    def count_of(self, uid: int) -> int:
        """Of this user's folders."""
        return sum(r.deleted_at is None and r.user.uid == uid for r in self._records.values())

    async def save(self, record: VolumeRecord) -> None:
        """Write it, even if the caller is cancelled meanwhile; raises JournalError."""
        await asyncio.shield(self._commit(JournalBatch(volumes=(record,)), record))

    async def forget_deleted(self, now: datetime) -> None:
        """Drop the rows of folders that were deleted long ago."""
        old = tuple(
            record.handle
            for record in self._records.values()
            if record.deleted_at is not None and now - record.deleted_at > KEPT_AFTER_DELETION
        )
        if old:
            await asyncio.shield(self._commit(JournalBatch(forget_volumes=old)))

    def _commit(self, batch: JournalBatch, saved: VolumeRecord | None = None) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(fault: JournalError | None) -> None:
            if fault is None and saved is not None:
                self._records[saved.handle] = saved
            for handle in () if fault else batch.forget_volumes:
                self._records.pop(handle, None)
            if done.done():
                return
            if fault is None:
                done.set_result(None)
            else:
                done.set_exception(fault)

        self._journal.commit(batch, answered)
        return done
