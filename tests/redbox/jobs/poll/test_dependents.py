"""Jobs that depend on one that Slurm has forgotten do not follow the stranger that has its id."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from redbox.core.workload_manager import JobAction
from redbox.jobs.errors import JobsBusy, NotAcceptable
from redbox.jobs.queue_snapshot import SnapshotIndex, SnapshotMatch
from redbox.jobs.record.record import JobRecord, with_warning
from redbox_api.models import Dependency, Job, Phase
from tests.redbox.jobs.harness import World, caller, request


def submit(
    world: World, key: str, *, after: str | None = None, how: str = "afterok", attempt: int = 1
) -> Job:
    dependencies = [Dependency(type=how, key=after)] if after else []
    body = request(dependencies=dependencies)
    job, _ = world.run(world.jobs.put(caller(), key, attempt, body))
    return job


def current(world: World, key: str, attempt: int = 1) -> Job:
    return world.run(world.jobs.get(caller(), key, attempt))


@pytest.fixture
def pair(world: World) -> World:
    """`child` depends on `parent`, both wait."""
    submit(world, "parent")
    submit(world, "child", after="parent")
    world.advance(5)
    assert world.slurm.dependencies["2"] == ["afterok:1"]
    return world


def test_while_all_is_well_nothing_is_done(pair: World) -> None:
    pair.slurm.restart()
    pair.advance(60)
    assert pair.slurm.acts == []


def test_a_waiting_job_is_held_as_soon_as_the_other_one_is_absent(pair: World) -> None:
    pair.slurm.restart("1")
    pair.slurm.add_foreign(2002, job_id="1", state="RUNNING")
    pair.advance(5)
    assert pair.slurm.acts == [(JobAction.HOLD, "2")]
    child = current(pair, "child")
    assert (child.phase, child.reason) == (Phase.PENDING, "JobHeldUser")
    assert "Slurm has forgotten a job that it depends on" in (child.message or "")


def test_the_end_of_a_job_whose_second_launch_failed_is_slurms_own_affair(pair: World) -> None:
    """It is lost, and Slurm has not forgotten it."""
    pair.slurm.start("1")
    pair.advance(5)
    pair.slurm.requeue("1")
    pair.slurm.start("1")
    pair.advance(5)
    ended = replace(pair.slurm.jobs["1"], state="CANCELLED", cancelled_by=0, requeue=False)
    pair.slurm.put(replace(ended, ended_at=pair.clock.now()))
    pair.advance(60)
    assert (current(pair, "parent").phase, current(pair, "parent").reason) == (Phase.LOST, "LaunchFailed")
    assert pair.slurm.acts == []


def test_it_follows_the_next_attempt_once_that_has_an_id(pair: World) -> None:
    pair.slurm.restart("1")
    pair.slurm.add_foreign(2002, job_id="1", state="RUNNING")
    pair.advance(60)
    assert current(pair, "parent").phase is Phase.LOST
    retry = submit(pair, "parent", attempt=2)
    pair.advance(30)
    assert pair.slurm.dependencies["2"] == [f"afterok:{retry.job_id}"]
    assert pair.slurm.acts[-1] == (JobAction.RELEASE, "2")
    assert current(pair, "child").reason == "Priority"
    before = len(pair.slurm.acts)
    pair.advance(60)
    assert len(pair.slurm.acts) == before


def test_a_red_box_that_starts_later_ends_its_own_hold(pair: World) -> None:
    pair.slurm.restart("1")
    pair.advance(60)
    pair.restart()
    submit(pair, "parent", attempt=2)
    pair.advance(30)
    assert current(pair, "child").reason == "Priority"


class AnotherChange:
    """Changes the record of the child, once, right before what follows from a poll."""

    def __init__(self, world: World) -> None:
        self.store = world.jobs._store
        self.begun: list[asyncio.Task[None]] = []

    def follow(self, record: JobRecord, _: SnapshotMatch, __: SnapshotIndex) -> None:
        if record.key.key == "child" and not self.begun:
            change = self.store.change_one(record.key, lambda current: with_warning(current, "another"))
            self.begun.append(asyncio.ensure_future(change))


def test_whose_hold_it_is_is_known_although_the_record_was_being_changed_then(pair: World) -> None:
    poller = pair.jobs._poller
    other = AnotherChange(pair)
    pair.slurm.restart("1")
    poller._followers = (other, *poller._followers)
    pair.advance(60)
    assert other.begun
    assert pair.slurm.acts == [(JobAction.HOLD, "2")]
    submit(pair, "parent", attempt=2)
    pair.advance(30)
    assert current(pair, "child").reason == "Priority"


def test_a_hold_that_slurm_does_not_end_at_once_is_ended_later(pair: World) -> None:
    pair.slurm.restart("1")
    pair.advance(60)
    pair.slurm.refuse_acts = "Job update not available right now, the DB index is being set"
    submit(pair, "parent", attempt=2)
    pair.advance(30)
    assert current(pair, "child").reason == "JobHeldUser"
    pair.slurm.refuse_acts = ""
    pair.advance(30)
    assert current(pair, "child").reason == "Priority"


def test_a_dependency_that_any_end_meets_is_met_once_the_other_one_is_lost(world: World) -> None:
    submit(world, "parent")
    submit(world, "child", after="parent", how="afterany")
    world.advance(5)
    world.slurm.restart("1")
    world.advance(90)
    assert world.slurm.dependencies["2"] == []
    assert current(world, "child").reason == "Priority"


def test_one_that_has_started_is_warned(pair: World) -> None:
    pair.slurm.restart("1")
    pair.slurm.start("2")
    pair.advance(60)
    child = current(pair, "child")
    assert child.phase is Phase.RUNNING
    assert sum("had forgotten job 1 (parent)" in warning for warning in child.warnings) == 1
    assert pair.slurm.acts == []


def test_one_that_has_already_ended_is_warned_too(pair: World) -> None:
    pair.slurm.restart("1")
    pair.slurm.start("2")
    pair.slurm.end("2")
    pair.advance(60)
    child = current(pair, "child")
    assert child.phase is Phase.SUCCEEDED
    assert any("had forgotten job 1 (parent)" in warning for warning in child.warnings)


def test_a_start_after_the_other_jobs_start_is_no_strangers_doing(world: World) -> None:
    submit(world, "parent")
    submit(world, "child", after="parent", how="after")
    world.slurm.start("1")
    world.slurm.start("2")
    world.advance(15)
    world.slurm.restart("1")
    world.advance(60)
    assert current(world, "parent").phase is Phase.LOST
    assert current(world, "child").warnings == []


def test_an_attempt_that_was_given_the_id_of_the_one_before_is_followed_as_it_is(pair: World) -> None:
    pair.slurm.restart("1")
    pair.advance(60)
    retry = submit(pair, "parent", attempt=2)
    assert retry.job_id == "1"
    pair.advance(30)
    pair.slurm.start("1")
    pair.slurm.end("1")
    pair.slurm.start("2")
    pair.advance(60)
    child = current(pair, "child")
    assert (child.phase, child.warnings) == (Phase.RUNNING, [])


def test_a_users_own_hold_stays(world: World) -> None:
    submit(world, "parent")
    dependency = Dependency(type="afterok", key="parent")
    world.run(world.jobs.put(caller(), "child", 1, request(hold=True, dependencies=[dependency])))
    world.advance(5)
    world.slurm.restart("1")
    world.advance(60)
    submit(world, "parent", attempt=2)
    world.advance(30)
    assert world.slurm.acts == []
    assert current(world, "child").reason == "JobHeldUser"


def test_before_a_submit_the_other_job_must_carry_its_mark(world: World) -> None:
    submit(world, "parent")
    world.advance(5)
    world.slurm.restart("1")
    world.slurm.add_foreign(2002, job_id="1", state="RUNNING")
    with pytest.raises(JobsBusy, match="does not show job 1 as that job"):
        submit(world, "child", after="parent")
    assert len(world.slurm.ever) == 1
    world.advance(60)
    with pytest.raises(NotAcceptable, match="ended Lost"):
        submit(world, "child", after="parent")


def test_another_users_id_is_the_callers_own_affair(world: World) -> None:
    stranger = world.slurm.add_foreign(2002)
    body = request(dependencies=[Dependency(type="afterany", job_id=stranger.job_id)])
    world.run(world.jobs.put(caller(), "child", 1, body))
    world.advance(5)
    world.slurm.jobs[stranger.job_id] = replace(stranger, mark="another")
    world.advance(60)
    assert world.slurm.acts == []
