"""Ends that the accounting tells of, of very many jobs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from redbox.core.workload_manager import AccountingSnapshot
from redbox.jobs.poll import missing_jobs
from redbox_api.models import Phase
from tests.redbox.jobs.harness import World, caller, request


def test_more_jobs_than_the_accounting_can_tell_of_in_time_are_asked_for_part_by_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an hour without red-box: all at once never had an answer within the time of one call."""
    monkeypatch.setattr(missing_jobs, "FEWEST_AT_ONCE", 5)
    history = world.slurm.history

    async def slow(job_ids: Collection[str], **facts: Any) -> AccountingSnapshot:
        await world.clock.sleep(3.0 * len(job_ids))
        return await history(job_ids, **facts)

    monkeypatch.setattr(world.slurm, "history", slow)
    keys = [f"key-{number}" for number in range(40)]
    for key in keys:
        world.run(world.jobs.put(caller(), key, 1, request()))
    world.advance(5)
    for job_id in list(world.slurm.jobs):
        world.slurm.end(job_id)
        world.slurm.purge(job_id)
    world.advance(600)
    assert {world.run(world.jobs.get(caller(), key)).phase for key in keys} == {Phase.SUCCEEDED}
