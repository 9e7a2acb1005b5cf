"""Whether Slurm hides the jobs of others: where it does, an empty answer to red-box shows nothing."""

from __future__ import annotations

import pytest

from redbox.core.workload_manager import WorkloadManagerError
from tests.redbox.slurm.captured import output
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import ALICE, CONFIG, ScriptedAgents, accounted, done, queue
from tests.redbox.slurm.test_job_queries import HIDDEN, PRIVATE, askers, manager


async def test_while_slurmdbd_does_not_say_whether_it_hides_jobs_no_empty_history_is_whole() -> None:
    """Sacctmgr then shows slurmctld's part, and fails: that nothing is hidden would be kept for minutes."""
    down = done(
        output("24.11", "sacctmgr-config.txt").partition("\nSlurmDBD")[0],
        "sacctmgr: error: Problem talking to the database: Connection refused\n",
        1,
    )
    agents = ScriptedAgents({"sacctmgr": [down, HIDDEN], "sacct --noheader": accounted()})
    asked = manager(agents)
    with pytest.raises(WorkloadManagerError, match="Connection refused"):
        await asked.history(["7"], users=[ALICE])
    await asked.history(["7"], users=[ALICE])
    assert askers(agents, "sacct")[1:] == ["alice"]


async def test_jobs_that_slurm_begins_to_hide_are_looked_for_as_their_users() -> None:
    """Without accounting, jobs that a second look does not show are lost."""
    agents = ScriptedAgents(
        {"scontrol show config": [CONFIG, PRIVATE], "squeue": [queue(), queue(job("7")), queue(job("7"))]}
    )
    asked = manager(agents)
    assert (await asked.poll(users=[ALICE])).complete
    await asked.boot_time()  # as it is read before a job that the poll lacks is looked for
    found = await asked.find_live(["7"], users=[ALICE])
    assert ([seen.job_id for seen in found.jobs], askers(agents, "squeue")) == (["7"], ["redbox", "alice"])
    await asked.poll(users=[ALICE])
    assert askers(agents, "squeue")[-1] == "alice"
