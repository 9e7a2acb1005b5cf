"""When a job would start: who may ask, how often Slurm is asked, and what is kept of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redbox.core.domain import Caller
from redbox.core.token_buckets import Rate
from redbox.jobs import expected_starts
from redbox.jobs.errors import Forbidden, JobConflict, JobNotFound, JobsBusy, RateLimited
from redbox.jobs.expected_starts import ExpectedStarts
from redbox_api.models import ExpectedStart
from tests.redbox.jobs.harness import BOB, World, caller, operator, request

SOON, LATER = datetime(2026, 11, 25, 14, 5, tzinfo=UTC), datetime(2026, 11, 25, 16, tzinfo=UTC)


@pytest.fixture
def starts(world: World) -> ExpectedStarts:
    return ExpectedStarts(world.jobs, world.slurm, world.clock)


def waiting(world: World, key: str = "k1") -> str:
    """A job of this key that waits; its id."""
    job, _ = world.run(world.jobs.put(caller(), key, 1, request()))
    assert job.job_id
    world.slurm.expected_start_at = SOON
    return job.job_id


def asked(world: World, starts: ExpectedStarts, who: Caller | None = None, key: str = "k1") -> ExpectedStart:
    return world.run(starts.of_job(who or caller(), key))


def test_the_owner_is_told_and_others_find_no_such_job(world: World, starts: ExpectedStarts) -> None:
    waiting(world)
    assert asked(world, starts).starts_at == SOON
    with pytest.raises(JobNotFound):
        asked(world, starts, caller(BOB, "biology", "uid-2"))
    with pytest.raises(Forbidden):
        asked(world, starts, operator())
    with pytest.raises(JobNotFound):
        asked(world, starts, key="k2")


def test_slurm_is_asked_once_in_a_few_seconds(world: World, starts: ExpectedStarts) -> None:
    job_id = waiting(world)
    for _ in range(5):
        asked(world, starts)
    assert world.slurm.starts_asked == [job_id]
    world.slurm.expected_start_at = LATER
    world.advance(expected_starts.FRESH_S + 1)
    assert asked(world, starts).starts_at == LATER


def test_estimates_that_change_change_no_job(world: World, starts: ExpectedStarts) -> None:
    waiting(world)
    world.advance(11)
    before = world.run(world.jobs.list(caller()))
    asked(world, starts)
    world.slurm.expected_start_at = LATER
    world.advance(60)
    asked(world, starts)
    after = world.run(world.jobs.list(caller()))
    assert (after.revision, after.items) == (before.revision, before.items)


def test_a_job_that_runs_has_ended_or_is_gone_does_not_wait(world: World, starts: ExpectedStarts) -> None:
    runs, gone = waiting(world), waiting(world, "k2")
    world.slurm.start(runs)
    del world.slurm.jobs[gone]
    for key in ("k1", "k2"):
        with pytest.raises(JobConflict, match="does not wait any more"):
            asked(world, starts, key=key)
    world.slurm.end(runs)
    world.advance(60)
    with pytest.raises(JobConflict, match="has ended"):
        asked(world, starts)
    assert world.slurm.starts_asked == [runs, gone]


def test_an_id_of_a_stranger_is_gone(world: World, starts: ExpectedStarts) -> None:
    job_id = waiting(world)
    world.slurm.restart(job_id)
    with pytest.raises(JobConflict, match="is gone"):
        asked(world, starts)


def test_a_slurm_that_is_away_is_not_asked_again_at_once(world: World, starts: ExpectedStarts) -> None:
    waiting(world)
    world.slurm.down = True
    with pytest.raises(JobsBusy, match="Slurm does not answer"):
        asked(world, starts)
    world.slurm.down = False
    with pytest.raises(JobsBusy):
        asked(world, starts)
    world.advance(expected_starts.FAILURE_S + 1)
    assert asked(world, starts).starts_at == SOON


def test_an_owner_of_many_jobs_does_not_have_slurm_asked_about_all_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_starts, "CALLS", Rate(1.0, 2.0))
    starts = ExpectedStarts(world.jobs, world.slurm, world.clock)
    for key in ("k1", "k2", "k3"):
        waiting(world, key)
    for key in ("k1", "k2", "k2"):
        asked(world, starts, key=key)
    with pytest.raises(RateLimited):
        asked(world, starts, key="k3")
    world.advance(1.0)
    assert asked(world, starts, key="k3").starts_at == SOON


def test_answers_are_kept_for_a_bounded_number_of_jobs(
    world: World, starts: ExpectedStarts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected_starts, "MOST_JOBS", 2)
    for key in ("k1", "k2", "k3"):
        waiting(world, key)
        asked(world, starts, key=key)
    assert len(starts._answers) == 1
