"""A submit whose outcome is unknown, tried again as a held job."""

from __future__ import annotations

from typing import Any

import pytest

from redbox.core.workload_manager import JobAction
from redbox.jobs.errors import JobNotFound, JobsBusy, RefusedBySlurm
from redbox_api.models import Phase
from tests.redbox.jobs.harness import World, caller, request
from tests.redbox.jobs.submit.test_coordinator import KEY, put
from tests.redbox.jobs.submit_manners import HANGS, NEVER_ARRIVES, REFUSED, late


def put_without_an_answer(world: World, **facts: Any) -> None:
    world.slurm.manners.append(NEVER_ARRIVES)
    with pytest.raises(JobsBusy):
        put(world, **facts)


def test_an_unconfirmed_submit_is_tried_again_only_for_a_live_put_held_and_released_when_alone(
    world: World,
) -> None:
    put_without_an_answer(world)
    world.advance(500)
    assert world.slurm.ever == []
    with pytest.raises(JobNotFound):
        world.run(world.jobs.get(caller(), KEY))
    assert put(world)[1]
    assert world.slurm.jobs["1"].reason == "JobHeldUser"
    world.advance(5)
    assert world.slurm.acts == [(JobAction.RELEASE, "1")]
    assert world.slurm.jobs["1"].reason == "Priority"


def test_a_held_retry_whose_answer_a_crash_took_is_released_all_the_same(world: World) -> None:
    put_without_an_answer(world)
    world.advance(500)
    world.slurm.manners.append(HANGS)
    world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.settle()
    assert world.slurm.jobs["1"].reason == "JobHeldUser"
    world.restart()
    world.advance(20)
    assert world.slurm.acts == [(JobAction.RELEASE, "1")]
    assert world.slurm.jobs["1"].reason == "Priority"


@pytest.mark.parametrize("acts_take_s", [0.0, 3.0])
@pytest.mark.parametrize("starts", [False, True])
def test_a_submit_that_arrives_after_its_held_retry_is_the_job_whatever_polls_show_meanwhile(
    world: World, acts_take_s: float, *, starts: bool
) -> None:
    """The retry is cancelled: a poll that shows that while scancel goes on shows no end of the job."""
    world.slurm.acts_take_s = acts_take_s
    world.slurm.manners.append(late(125))
    with pytest.raises(JobsBusy):
        put(world)
    world.advance(100)
    assert put(world)[0].job_id == "1"
    world.advance(26)
    if starts:
        world.slurm.start("2")
    world.advance(60)
    job = world.run(world.jobs.get(caller(), KEY))
    assert (job.job_id, job.phase) == ("2", Phase.RUNNING if starts else Phase.PENDING)
    assert {act for act in world.slurm.acts if act[0] is JobAction.CANCEL} == {(JobAction.CANCEL, "1")}


def test_a_retry_of_a_job_that_its_request_holds_is_a_held_retry_too_and_is_not_released(
    world: World,
) -> None:
    """Only a held retry runs sbatch beside one whose outcome is unknown."""
    put_without_an_answer(world, hold=True)
    world.advance(500)
    assert put(world, hold=True)[1]
    assert [sbatch.submission.held for sbatch in world.slurm.processes] == [False, True]
    world.advance(60)
    assert world.slurm.acts == []
    assert world.slurm.jobs["1"].reason == "JobHeldUser"


def test_a_retry_within_the_minute_is_refused_for_now(world: World) -> None:
    put_without_an_answer(world)
    with pytest.raises(JobsBusy, match="nothing is submitted twice"):
        put(world)
    assert world.slurm.ever == []


def test_a_retry_that_is_refused_leaves_its_key_in_doubt_and_the_next_one_is_held_too(world: World) -> None:
    put_without_an_answer(world)
    world.advance(120)
    world.slurm.manners.append(REFUSED)
    with pytest.raises(RefusedBySlurm):
        put(world)
    assert put(world)[1]
    assert world.slurm.jobs["1"].reason == "JobHeldUser"
