"""A pod's job: its runner has a grace to stop the containers, and its private folder does not outlive it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.core.domain import JobKey
from redbox.core.workload_manager import JobAction
from redbox.jobs.errors import Forbidden
from redbox.jobs.record.record import lineage
from redbox_api.models import JobRequest, Phase
from tests.redbox.jobs.harness import World, caller, request

POD = JobRequest.model_validate(
    {
        "pod": {
            "name": "p",
            "namespace": "physics",
            "uid": "u",
            "terminationGraceS": 60,
            "containers": [{"name": "c", "image": "docker://x"}],
        }
    }
)
STOP, CANCEL = (JobAction.STOP, "1"), (JobAction.CANCEL, "1")


def running(world: World, asked: JobRequest = POD) -> None:
    world.run(world.jobs.put(caller(), "key", 1, asked))
    world.slurm.put(replace(world.slurm.jobs["1"], state="RUNNING", started_at=world.clock.now()))
    world.advance(3)


def phase(world: World) -> Phase:
    return world.run(world.jobs.get(caller(), "key")).phase


def test_a_running_pod_is_told_to_stop_once_and_is_cancelled_when_its_grace_is_over(world: World) -> None:
    running(world)
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(60)
    assert world.slurm.acts == [STOP]
    assert phase(world) is Phase.RUNNING
    world.advance(40)
    assert world.slurm.acts == [STOP, CANCEL]
    assert phase(world) is Phase.CANCELLED


def test_a_pod_that_ends_within_its_grace_is_not_cancelled(world: World) -> None:
    running(world)
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(10)
    world.slurm.end("1", "COMPLETED")
    world.advance(200)
    assert world.slurm.acts == [STOP]
    assert phase(world) is Phase.SUCCEEDED


def test_its_grace_goes_on_where_red_box_was_killed_and_the_runner_is_told_again(world: World) -> None:
    running(world)
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(5)
    world.crash()
    world.clock.advance_to(world.clock.elapsed + 40)
    world.start()
    world.advance(10)
    assert world.slurm.acts == [STOP, STOP]
    world.advance(30)
    assert world.slurm.acts == [STOP, STOP, CANCEL]


def test_its_grace_begins_although_its_record_is_being_changed_when_the_runner_is_told(world: World) -> None:
    """Else it would have no end: the runner is told once."""
    running(world)
    key = JobKey(caller().owner, "key")
    background, turns = world.jobs._context.background, world.jobs._store._turns
    world.begin(world.jobs.delete(caller(), "key"))
    while ("stop", key) not in background._tasks:
        world.step()
    line = lineage(key.owner, key.key)
    assert turns.take_free(line)
    world.settle()
    turns.give_back(line)
    world.advance(100)
    assert world.slurm.acts == [STOP, CANCEL]


def test_a_second_delete_by_force_cancels_at_once(world: World) -> None:
    running(world)
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(3)
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(3)
    assert world.slurm.acts == [STOP]
    world.run(world.jobs.delete(caller(), "key", force=True))
    world.advance(3)
    assert world.slurm.acts == [STOP, CANCEL]


def test_a_force_outlives_red_box(world: World) -> None:
    running(world)
    world.slurm.down = True
    world.run(world.jobs.delete(caller(), "key", force=True))
    world.restart()
    world.slurm.down = False
    world.advance(60)
    assert world.slurm.acts == [CANCEL]


def test_a_pod_that_waits_is_cancelled_at_once(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, POD))
    world.advance(3)
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(3)
    assert world.slurm.acts == [CANCEL]


def test_a_runner_that_cannot_be_told_is_cancelled_when_its_grace_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world)
    act, told = world.slurm.act, 0

    async def refuse_stop(handle: object, action: JobAction, **more: object) -> object:
        nonlocal told
        if action is JobAction.STOP:
            told += 1
            raise TimeoutError
        return await act(handle, action, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.slurm, "act", refuse_stop)
    world.run(world.jobs.delete(caller(), "key"))
    world.advance(60)
    assert 1 < told < 10
    assert world.slurm.acts == []
    world.advance(40)
    assert world.slurm.acts == [CANCEL]


def test_a_job_that_is_no_pod_is_cancelled_at_once_with_force_or_without(world: World) -> None:
    running(world, request())
    world.run(world.jobs.delete(caller(), "key"))
    world.run(world.jobs.delete(caller(), "key", force=True))
    world.advance(3)
    assert world.slurm.acts == [CANCEL]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "NODE_FAIL"])
def test_its_private_folder_is_removed_once_when_it_has_ended(world: World, state: str) -> None:
    running(world)
    world.advance(100)
    assert world.slurm.tidied == []
    world.slurm.end("1", state)
    world.advance(100)
    assert world.slurm.tidied == [world.slurm.ever[0].mark]


def test_where_pods_are_turned_off_new_ones_are_refused_and_those_that_run_go_on(world: World) -> None:
    running(world)
    world.crash()
    world.settings = world.settings.model_copy(update={"pods": False})
    world.start()
    with pytest.raises(Forbidden, match=r"jobs\.pods"):
        world.run(world.jobs.put(caller(), "another", 1, POD))
    with pytest.raises(Forbidden, match=r"jobs\.pods"):
        world.run(world.jobs.check(caller(), POD))
    job, created = world.run(world.jobs.put(caller(), "key", 1, POD))
    assert (job.phase, created) == (Phase.RUNNING, False)
    world.run(world.jobs.put(caller(), "batch", 1, request()))
