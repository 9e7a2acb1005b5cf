"""What the audit says of keys that are deleted, before they are submitted and after their end."""

from __future__ import annotations

import pytest

from redbox.jobs.errors import JobNotFound
from tests.redbox.jobs.harness import World, caller, request

KEY = "3f2b7c1e-0000-4000-8000-000000000001"


def test_a_tombstone_is_an_effect_in_the_audit_and_a_repetition_of_it_is_not(world: World) -> None:
    for _ in range(2):
        with pytest.raises(JobNotFound):
            world.run(world.jobs.delete(caller(), "none"))
    world.run(world.jobs.put(caller(), KEY, 1, request()))
    world.advance(2)
    for attempt in (1, None, None):
        world.run(world.jobs.delete(caller(), KEY, attempt))
    told = [(deed.outcome, deed.job.rpartition("/")[2]) for deed in world.deeds if deed.act == "cancel"]
    assert told == [
        ("tombstone", "1"),
        ("same", "1"),
        ("done", "1"),
        ("same", "1"),
        ("tombstone", "0"),
        ("same", "1"),
    ]


def test_a_cancel_of_a_job_that_has_ended_is_none_in_the_audit(world: World) -> None:
    world.run(world.jobs.put(caller(), KEY, 1, request()))
    world.slurm.end("1", "COMPLETED")
    world.advance(60)
    world.run(world.jobs.delete(caller(), KEY))
    assert [(deed.act, deed.outcome) for deed in world.deeds] == [("submit", "done"), ("cancel", "same")]
