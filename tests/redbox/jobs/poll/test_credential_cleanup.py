"""Registry credentials that a job left behind are taken away, however it ended."""

from __future__ import annotations

import pytest

from redbox_api.models import JobRequest, Phase
from tests.redbox.jobs.harness import World, caller, request
from tests.redbox.jobs.submit_manners import HANGS

CONTAINER = {"image": "docker://app:1", "registry": {"username": "me", "password": "word"}}
WITH_CREDENTIALS = JobRequest.model_validate({"container": CONTAINER})


def put(world: World, asked: JobRequest = WITH_CREDENTIALS) -> None:
    world.run(world.jobs.put(caller(), "key", 1, asked))
    world.advance(3)


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "NODE_FAIL"])
@pytest.mark.parametrize("restarted", [False, True])
def test_they_are_taken_away_once_when_the_job_has_ended(
    world: World, state: str, *, restarted: bool
) -> None:
    put(world)
    assert world.slurm.tidied == []
    if restarted:
        world.crash()
    world.slurm.end("1", state)  # a plain scancel, say
    if restarted:
        world.start()
    world.advance(100)
    assert world.slurm.tidied == [world.slurm.ever[0].mark]
    world.advance(4000)
    assert len(world.slurm.tidied) == 1
    assert not any(record.watched for record in world.jobs)


def test_a_job_that_was_deleted_before_it_was_submitted_leaves_none(world: World) -> None:
    world.slurm.manners.append(HANGS)
    world.begin(world.jobs.put(caller(), "key", 1, WITH_CREDENTIALS)).add_done_callback(
        lambda task: task.exception()
    )
    world.settle()
    world.restart()
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(400)
    assert world.run(world.jobs.get(caller(), "key")).phase is Phase.CANCELLED
    assert len(world.slurm.tidied) == 1


def test_a_user_whose_agent_does_not_start_is_tried_again_and_not_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = 0

    async def fail(*_: object) -> None:
        nonlocal tried
        tried += 1
        raise TimeoutError

    monkeypatch.setattr(world.slurm, "tidy", fail)
    put(world)
    world.slurm.end("1", "CANCELLED")
    world.advance(5000)
    assert 10 < tried < 100
    before = tried
    world.advance(5000)
    assert tried == before
    assert not any(record.watched for record in world.jobs)


def test_other_jobs_are_not_tidied(world: World) -> None:
    put(world, request())
    world.slurm.end("1")
    world.advance(100)
    assert world.slurm.tidied == []
