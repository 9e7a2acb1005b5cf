"""What was laid ready for a job, taken away once the job has ended, however it ended.

A job's script removes its registry credentials itself; one that was cancelled before it started, by whatever
means, or killed before it came so far, leaves them behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from redbox.core.domain import JobKey
from redbox.jobs.context import Context
from redbox.jobs.queue_snapshot import Look, Sighting
from redbox.jobs.record.record import Record

log = structlog.get_logger(__name__)

AGAIN_S = 60.0
GIVE_UP_S = 3600.0  # they stay where only their own user can read them


class Leftovers:
    """Has the workload manager tidy up, and notes that it has."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tried: dict[JobKey, float] = {}

    def after(self, look: Look, sightings: Mapping[JobKey, Sighting]) -> None:
        """After each look: jobs that have ended and may have left something."""
        del look
        now = self._context.clock.monotonic()
        for key in sightings:
            record = self._context.ledger.table.get(key)
            if record is None or not record.credentials or not record.final:
                self._tried.pop(key, None)
            elif now - self._tried.get(key, float("-inf")) >= AGAIN_S:
                self._tried[key] = now
                work = self._tidy(record)
                self._context.chores.start(("tidy", key), work, of=record.user.uid)

    async def _tidy(self, record: Record) -> None:
        age_s = (self._context.clock.now() - record.settled_at).total_seconds()
        if age_s < GIVE_UP_S:
            directory = record.seen.working_directory or record.working_directory
            await self._context.ask(self._context.workload.tidy(record.user, record.mark, directory))
        else:
            log.warning("registry credentials could not be removed", job=str(record.key))
        await self._context.ledger.change_free([record], _tidied)


def _tidied(record: Record) -> Record:
    return replace(record, credentials=False) if record.final else record
