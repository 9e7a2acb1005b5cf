"""All recorded volumes, by handle: in memory, after they are on the disk."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from itertools import islice

from redbox.jobs.errors import JournalError
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.sqlite import JournalBatch
from redbox.jobs.store.volume_rows import VolumeRecord

KEPT_AFTER_DELETION = timedelta(days=31)
DELETED_OF_A_USER = 1000
"""So many are kept, the newest: making and deleting folders in a loop fills neither memory nor journal."""


class VolumeIndex:
    """The volumes of the journal; a change can be seen once it is on the disk."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._records: dict[str, VolumeRecord] = {}
        self._living: Counter[int] = Counter()
        self._deleted: defaultdict[int, dict[str, datetime]] = defaultdict(dict)
        """By uid: when each handle's folder was deleted, the oldest first."""
        for record in sorted(journal.volumes, key=lambda record: record.deleted_at or record.made_at):
            self._keep(record)

    def get(self, handle: str) -> VolumeRecord | None:
        return self._records.get(handle)

    @property
    def count(self) -> int:
        """Of all folders that were not deleted."""
        return self._living.total()

    def count_of(self, uid: int) -> int:
        """Of this user's folders."""
        return self._living[uid]

    async def save(self, record: VolumeRecord) -> None:
        """Write it, even if the caller is cancelled meanwhile; raises JournalError."""
        surplus = () if record.deleted_at is None else self._surplus(record.user.uid)
        await asyncio.shield(self._commit(JournalBatch(volumes=(record,), forget_volumes=surplus), record))

    def _surplus(self, uid: int) -> tuple[str, ...]:
        """What one more deleted folder of the user leaves no room for."""
        deleted = self._deleted[uid]
        return tuple(islice(deleted, max(0, len(deleted) + 1 - DELETED_OF_A_USER)))

    def _keep(self, record: VolumeRecord) -> None:
        self._drop(record.handle)
        self._records[record.handle] = record
        if record.deleted_at is None:
            self._living[record.user.uid] += 1
        else:
            self._deleted[record.user.uid][record.handle] = record.deleted_at

    def _drop(self, handle: str) -> None:
        record = self._records.pop(handle, None)
        if record is None:
            return
        if record.deleted_at is None:
            self._living[record.user.uid] -= 1
        else:
            self._deleted[record.user.uid].pop(handle, None)

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
                self._keep(saved)
            for handle in () if fault else batch.forget_volumes:
                self._drop(handle)
            if done.done():
                return
            if fault is None:
                done.set_result(None)
            else:
                done.set_exception(fault)

        self._journal.commit(batch, answered)
        return done
