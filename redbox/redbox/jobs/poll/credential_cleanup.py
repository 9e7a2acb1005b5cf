"""The private folder of a job (registry credentials, all of a pod's files), removed once the job has ended.

A job removes its secrets itself; one that was cancelled before it started, or killed too early, leaves them
behind.
"""

from __future__ import annotations

from dataclasses import replace

import structlog

from redbox.core.domain import JobKey
from redbox.jobs.context import Context, JobsComponent
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch
from redbox.jobs.record.record import JobRecord

log = structlog.get_logger(__name__)

AGAIN_S = 60.0
GIVE_UP_S = 3600.0  # it stays where only its own user can read it


class CredentialCleanup(JobsComponent):
    """Removes it through the workload manager, and records that."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._tried: dict[JobKey, float] = {}

    def follow(self, record: JobRecord, _: SnapshotMatch, __: SnapshotIndex) -> None:
        """After each poll: a job that has ended and may have left its folder."""
        now = self._clock.monotonic()
        if not record.credentials or not record.final:
            self._tried.pop(record.key, None)
        elif now - self._tried.get(record.key, float("-inf")) >= AGAIN_S:
            self._tried[record.key] = now
            self._background.start(("tidy", record.key), self._tidy(record), of=record.user.uid)

    async def _tidy(self, record: JobRecord) -> None:
        age_s = (self._clock.now() - record.settled_at).total_seconds()
        if age_s < GIVE_UP_S:
            directory = record.status.working_directory or record.working_directory
            await self._context.call(self._workload.tidy(record.user, record.mark, directory))
        else:
            log.warning("%s: its private folder could not be removed", record.key)
        await self._store.change_free([record], _tidied)


def _tidied(record: JobRecord) -> JobRecord:
    return replace(record, credentials=False) if record.final else record
