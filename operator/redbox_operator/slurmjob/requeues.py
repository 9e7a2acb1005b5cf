"""Requeues that SlurmJobs ask for by an annotation: each is sent once, and has an event with its outcome.

The annotation names the run, and red-box requeues that run alone. So a request that is sent twice, or by the
next operator, is harmless. One that was refused is not sent again: another annotation asks again.
"""

from __future__ import annotations

from redbox_api.errors import Conflict, NotAccepted, NotAllowed
from redbox_api.models import Job
from redbox_kube.api.events import NORMAL, WARNING, Event
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmjob.attempt_state import AttemptState
from redbox_operator.status_writer import StatusWriter, path_of
from redbox_shared import requeues

REQUEUE = "requeue"
REQUEUED = "Requeued"


class Requeues:
    """Sends requeues, and remembers those that have their outcome."""

    def __init__(self, writer: StatusWriter) -> None:
        self._writer = writer
        self._settled: dict[str, str] = {}  # by the SlurmJob's uid

    async def act(self, state: AttemptState, link: RedboxLink, row: Job, requested: str) -> None:
        """Raises what may succeed later: Busy, RedboxUnavailable."""
        uid = state.job.uid
        if self._settled.get(uid) == requested:
            return
        try:
            await link.act(state.row_key, REQUEUE, run=row.run)
        except (Conflict, NotAccepted, NotAllowed) as refusal:
            await self._publish(state, requested, WARNING, requeues.REFUSED, str(refusal))
        else:
            await self._publish(state, requested, NORMAL, REQUEUED, "Slurm has it in its queue again.")
        self._settled[uid] = requested

    def forget(self, uid: str) -> None:
        """The SlurmJob is gone."""
        self._settled.pop(uid, None)

    async def _publish(
        self, state: AttemptState, requested: str, severity: str, reason: str, words: str
    ) -> None:
        job = state.job
        event = Event(
            about=path_of(job.ref),
            uid=job.uid,
            change=f"{reason}|{requested}",
            severity=severity,
            reason=reason,
            message=f"{requested}: {words}",
            action=REQUEUE,
            component=FIELD_MANAGER,
        )
        await self._writer.publish_event(event)
