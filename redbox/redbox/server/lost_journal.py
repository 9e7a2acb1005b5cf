"""A new journal, though jobs that live in Slurm carry this red-box's mark: the one that knew them was lost.

A server that went on would submit them a second time when they are PUT again, and let SlurmJobs go whose
jobs run on. It ends with a sentence instead: `redbox recover` rebuilds the journal from just these marks.
"""

from __future__ import annotations

from collections.abc import Awaitable

from redbox.core.workload_manager import QueueSnapshot, WorkloadManager
from redbox.jobs.errors import JournalLost
from redbox.jobs.record.marks import PREFIX, Marks
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.sqlite import JournalBatch
from redbox.jobs.submit.takeover_fence import TAKEN_OVER_AT
from redbox.server.cluster_identity import answer_of
from redbox.settings import Settings
from redbox_api.models import FINAL_PHASES

LOOKED_AT = "nothing of an earlier journal was in Slurm"
NAMED = 3


async def refuse_if_lost(
    settings: Settings, journal: Journal, workload: WorkloadManager, marks: Marks
) -> None:
    """Raise JournalLost; a journal is new only once, so that no later mark of a user's can stop a start."""
    contents = journal.contents
    if contents is None or contents.records or {TAKEN_OVER_AT, LOOKED_AT} & contents.facts.keys():
        return

    def look() -> Awaitable[QueueSnapshot]:
        return workload.poll(wanted=lambda _, mark: mark.startswith(PREFIX))

    poll = await answer_of(look, settings)
    living = (job for job in poll.jobs if workload.states.phase_of(job.state) not in FINAL_PHASES)
    ours = [job.job_id for job in living if marks.verify(job.mark, job.uid)]
    if ours:
        shown = ", ".join(ours[:NAMED]) + (", ..." if ours[NAMED:] else "")
        raise JournalLost(
            f"The journal in {settings.jobs.journal} is new, but {len(ours)} living jobs in Slurm carry this "
            f"red-box's mark ({shown}): the journal that knew them was lost. Run `redbox recover` as the "
            "account of red-box, which rebuilds it from these marks, and start red-box again."
        )
    journal.commit(JournalBatch(facts=((LOOKED_AT, "yes"),)), lambda _: None)
