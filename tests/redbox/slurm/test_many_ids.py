"""Queries for more jobs than one argument holds, and how long a boot time is kept."""

from __future__ import annotations

import pytest

from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents, SkippingClock, done, queue


def manager(agents: ScriptedAgents) -> SlurmManager:
    return SlurmManager(agents, REDBOX, clock=SkippingClock())


async def test_very_many_ids_are_asked_for_in_several_calls_whose_answers_are_one() -> None:
    """Linux takes no argument of more than 128 KiB."""
    ids = [str(number) for number in range(67_000_000, 67_015_000)]
    agents = ScriptedAgents({"squeue": [queue(job(ids[3])), queue(job(ids[-1]))]})
    found = await manager(agents).find_live(ids)
    assert [observed.job_id for observed in found.jobs] == [ids[3], ids[-1]]
    assert found.complete
    asked = [argv[-1] for argv in agents.called("squeue")]
    assert max(map(len, asked)) < 128 * 1024
    assert [argument.removeprefix("--jobs=").split(",") for argument in asked] == [ids[:10_000], ids[10_000:]]


async def test_where_one_of_several_calls_fails_no_job_is_absent() -> None:
    ids = [str(number) for number in range(15_000)]
    agents = ScriptedAgents({"squeue": [queue(), done("", "Socket timed out", 1)]})
    with pytest.raises(WorkloadManagerError):
        await manager(agents).find_live(ids)


async def test_the_boot_time_is_asked_for_again_once_it_has_expired() -> None:
    agents = ScriptedAgents({"squeue": queue()})
    asked = manager(agents)
    for _ in range(2):
        await asked.poll(users=[ALICE])
        assert len(agents.called("scontrol show config")) == 1
    asked.expire_boot_time()
    await asked.poll(users=[ALICE])
    assert len(agents.called("scontrol show config")) == 2
