"""An update of a pod: written for its runner, which is told, and shown once both are certain."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from redbox.core.workload_manager import ActionResult, JobAction, WorkloadManagerError
from redbox.jobs.errors import JobConflict, JobNotFound, JobsBusy, RefusedBySlurm
from redbox_api.models import Job, JobRequest, Phase
from redbox_api.pod_parts import PodUpdate
from redbox_api.pod_report import inputs_digest
from tests.redbox.jobs.harness import BOB, World, caller, request

POD: dict[str, Any] = {
    "name": "p",
    "namespace": "physics",
    "uid": "u",
    "containers": [{"name": "c", "image": "docker://x"}],
    "inputs": "v1 d",
}
UPDATE = PodUpdate(inputs="v2 d")
AT = "2026-01-01T00:00:00Z"
TOLD = (JobAction.UPDATE, "1")


def submit(world: World, **pod: Any) -> None:
    world.run(world.jobs.put(caller(), "key", 1, JobRequest.model_validate({"pod": {**POD, **pod}})))


def running(world: World) -> None:
    submit(world)
    world.slurm.start("1")
    world.advance(3)


def update(world: World, what: PodUpdate = UPDATE, who: Any = None) -> Job:
    return world.run(world.jobs.update_pod(who or caller(), "key", 1, what))


def shown(world: World) -> str | None:
    return world.run(world.jobs.get(caller(), "key")).pod_inputs


def says(world: World, inputs: str, *, settled: bool = True) -> None:
    """The runner reports that its one container runs, with these inputs."""
    row = {"name": "c", "state": {"running": {"startedAt": AT}}}
    line = {"at": AT, "settled": settled, "containers": [row], "inputs": inputs_digest(inputs)}
    world.slurm.reports[world.slurm.ever[0].mark] = json.dumps(line).encode()


def reads(world: World, seconds: float) -> int:
    before = len(world.slurm.reports_read)
    world.advance(seconds)
    return len(world.slurm.reports_read) - before


def test_an_update_is_written_the_runner_is_told_and_the_job_shows_it(world: World) -> None:
    running(world)
    assert shown(world) == "v1 d"
    assert update(world).pod_inputs == "v2 d"
    assert world.slurm.updates == [(world.slurm.ever[0].mark, UPDATE)]
    assert world.slurm.acts == [TOLD]
    assert [(deed.act, deed.outcome) for deed in world.deeds][-1] == ("update", "done")


def test_it_outlives_a_restart_of_red_box(world: World) -> None:
    running(world)
    update(world)
    world.crash()
    world.start()
    assert shown(world) == "v2 d"


def test_where_it_was_not_written_the_job_shows_what_it_had(world: World) -> None:
    running(world)
    world.slurm.update_fault = WorkloadManagerError("/home/alice: Disk quota exceeded")
    with pytest.raises(JobsBusy, match="Disk quota exceeded"):
        update(world)
    assert (shown(world), world.slurm.acts) == ("v1 d", [])


def test_one_that_may_have_been_written_after_the_jobs_end_is_tidied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(world)
    store = world.jobs._store
    (key,) = (summary.key for summary in store.index)

    async def end_late(*_: object) -> ActionResult:
        """The job has ended and was tidied when the time for an answer is over."""
        await store.change_one(key, lambda record: replace(record, phase=Phase.FAILED, credentials=False))
        raise TimeoutError

    monkeypatch.setattr(world.slurm, "update_pod", end_late)
    with pytest.raises(JobsBusy):
        update(world)
    found = store.index.get(key)
    assert found is not None
    assert found.credentials


def test_where_the_runner_was_not_told_it_is_sent_again(world: World) -> None:
    running(world)
    world.slurm.refuse_acts = "Slurm temporarily unable to accept job"
    with pytest.raises(JobsBusy, match="temporarily unable"):
        update(world)
    assert shown(world) == "v1 d"
    world.slurm.refuse_acts = ""
    assert update(world).pod_inputs == "v2 d"


def test_what_cannot_be_written_is_refused_in_words(world: World) -> None:
    running(world)
    world.slurm.refuse_updates = "sources: too many bytes."
    with pytest.raises(RefusedBySlurm, match="too many bytes"):
        update(world)
    assert shown(world) == "v1 d"


def test_only_the_owner_updates_a_pod(world: World) -> None:
    running(world)
    with pytest.raises(JobNotFound):
        update(world, who=caller(BOB, "chemistry"))
    assert world.slurm.updates == []


def test_a_job_without_inputs_and_one_that_has_ended_are_not_updated(world: World) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    with pytest.raises(JobConflict, match="no pod"):
        update(world)
    world.run(world.jobs.put(caller(), "pod", 1, JobRequest.model_validate({"pod": POD})))
    world.slurm.end("2")
    world.advance(60)
    with pytest.raises(JobConflict, match="has ended"):
        world.run(world.jobs.update_pod(caller(), "pod", 1, UPDATE))
    assert world.slurm.updates == []


def test_a_settled_pod_is_followed_until_its_runner_has_applied_the_update(world: World) -> None:
    running(world)
    says(world, "v1 d")
    world.advance(5)
    assert reads(world, 60) == 0
    update(world)
    assert reads(world, 20) > 5  # the last line is of before the update
    says(world, "v2 d")
    world.advance(5)
    assert reads(world, 60) == 0


def test_versions_of_what_a_pod_is_made_of_are_no_other_request(world: World) -> None:
    submit(world)
    submit(world, inputs="v9 d")
    assert len(world.slurm.ever) == 1
    assert world.run(world.jobs.get(caller(), "key")).phase is Phase.PENDING
