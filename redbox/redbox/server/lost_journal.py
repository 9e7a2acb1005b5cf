"""Detects a lost journal: it is new, though active jobs in Slurm carry this red-box's mark.

A server with an empty journal would submit these jobs a second time when they are PUT again, and would let go
of SlurmJobs whose jobs still run. It ends with an error instead: `redbox recover` rebuilds the journal from
these marks.
"""

from __future__ import annotations

from functools import partial

from redbox.core.workload_manager import WorkloadManager
from redbox.jobs.errors import JournalLost
from redbox.jobs.record.marks import PREFIX, Marks
from redbox.jobs.store.journal import Journal
from redbox.jobs.store.sqlite import JournalBatch
from redbox.jobs.submit.takeover_fence import TAKEN_OVER_AT
from redbox.server.cluster_identity import wait_for_slurm
from redbox.settings import RedboxSettings
from redbox_api.models import FINAL_PHASES

CHECKED = "nothing of an earlier journal was in Slurm"
SHOWN_IDS = 3


async def check_journal_not_lost(
    settings: RedboxSettings, journal: Journal, workload: WorkloadManager, marks: Marks
) -> None:
    """Raise JournalLost. A journal is checked only once, so that no later mark can prevent a start."""
    contents = journal.contents
    if contents is None or contents.records or {TAKEN_OVER_AT, CHECKED} & contents.facts.keys():
        return

    poll = partial(workload.poll, wanted=lambda _, mark: mark.startswith(PREFIX))
    snapshot = await wait_for_slurm(poll, settings)
    active = (job for job in snapshot.jobs if workload.states.phase_of(job.state) not in FINAL_PHASES)
    marked = [job.job_id for job in active if marks.verify(job.mark, job.uid)]
    if marked:
        shown = ", ".join(marked[:SHOWN_IDS]) + (", ..." if marked[SHOWN_IDS:] else "")
        raise JournalLost(
            f"The journal in {settings.jobs.journal} is new, but {len(marked)} active jobs in Slurm carry "
            f"this red-box's mark ({shown}): the previous journal was lost. Run `redbox recover` as the "
            "account of red-box, which rebuilds it from these marks, and start red-box again."
        )
    journal.commit(JournalBatch(facts=((CHECKED, "yes"),)), lambda _: None)
