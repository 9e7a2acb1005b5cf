"""A journal of release 0.1.0, with a row in every stage: today's code opens it and goes on.

It has twenty-six jobs and three tombstones at simulated midnight. The text of each row must be reproduced to
the byte: a field that is renamed keeps its stored key.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from redbox.core.domain import JobKey, Limits
from redbox.core.observations import Observation, TaskObservation
from redbox.core.workload_manager import JobAction
from redbox.jobs.errors import JobConflict, JobNotFound, Tombstoned
from redbox.jobs.record import codec
from redbox.jobs.record.marks import Marks
from redbox.jobs.record.packed_records import unpack
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.store.journal import FILE_NAME
from redbox.jobs.store.sqlite import Database
from redbox_api.models import Phase
from tests.redbox.jobs.fakes import SimulatedSlurm
from tests.redbox.jobs.harness import ALICE, SECRET, World, caller, operator, request

DUMP = Path(__file__).parent / "journal_of_0.1.0.sql"
OWNER = caller().owner
HELD = "JobHeldUser"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.executescript(DUMP.read_text())
    database.close()
    return tmp_path


def rows(directory: Path) -> dict[str, str]:
    database = sqlite3.connect(directory / FILE_NAME)
    texts = dict(database.execute("SELECT key, record FROM jobs").fetchall())
    database.close()
    return texts


def records(directory: Path) -> dict[str, JobRecord]:
    return {outline.key.key: unpack(outline) for outline in Database(directory / FILE_NAME).load().records}


STAGES = {
    "intent": (Stage.INTENT, Phase.SUBMITTING),
    "intent-arrived": (Stage.INTENT, Phase.SUBMITTING),
    "intent-cancelled": (Stage.INTENT, Phase.SUBMITTING),
    "intent-retried": (Stage.INTENT, Phase.SUBMITTING),
    "doubtful": (Stage.UNCONFIRMED, Phase.SUBMITTING),
    "submitted": (Stage.BOUND, Phase.PENDING),
    "held-retry": (Stage.BOUND, Phase.PENDING),
    "pending": (Stage.BOUND, Phase.PENDING),
    "held": (Stage.BOUND, Phase.PENDING),
    "running": (Stage.BOUND, Phase.RUNNING),
    "suspended": (Stage.BOUND, Phase.SUSPENDED),
    "cancelling": (Stage.BOUND, Phase.RUNNING),
    "node-failed": (Stage.BOUND, Phase.RUNNING),
    "absent": (Stage.BOUND, Phase.RUNNING),
    "absent-lost": (Stage.BOUND, Phase.RUNNING),
    "outside-limits": (Stage.BOUND, Phase.PENDING),
    "array": (Stage.BOUND, Phase.RUNNING),
    "env-changed": (Stage.BOUND, Phase.RUNNING),
    "succeeded": (Stage.BOUND, Phase.SUCCEEDED),
    "failed": (Stage.BOUND, Phase.FAILED),
    "failed-in-queue": (Stage.BOUND, Phase.FAILED),
    "cancelled": (Stage.BOUND, Phase.CANCELLED),
    "lost": (Stage.BOUND, Phase.LOST),
    "never": (Stage.NEVER, Phase.CANCELLED),
    "credentials": (Stage.BOUND, Phase.SUCCEEDED),
    "recovered": (Stage.BOUND, Phase.SUCCEEDED),
}

LEFT_OUT = {  # at their defaults in every row
    "boot_time",
    "cancel_after_end",
    "cancel_forced",
    "dependencies",
    "earlier_start",
    "grace_s",
    "held_for_dependency",
    "is_pod",
    "lost_reason",
    "no_sign_of_start",
    "pod_inputs",
    "pod_report",
    "report_complete",
    "report_settled",
    "stopping_since",
    "uncounted_runs",
    "component_nodes",
    "shape",
}


def test_every_row_has_its_stage_and_its_phase(directory: Path) -> None:
    assert {key: (record.stage, record.phase) for key, record in records(directory).items()} == STAGES
    assert {stage for stage, _ in STAGES.values()} == set(Stage)
    assert {phase for _, phase in STAGES.values()} == set(Phase)


def test_every_row_is_written_as_it_was_read(directory: Path) -> None:
    texts = rows(directory)
    stored = {key: json.loads(text) for key, text in texts.items()}
    written = {key: json.loads(codec.to_text(record)) for key, record in records(directory).items()}
    assert written == stored
    in_rows = set().union(*stored.values()), set().union(*(row["seen"] for row in stored.values()))
    assert in_rows[0] == {*codec.RECORD_FIELDS, "user", "seen"} - LEFT_OUT
    assert in_rows[1] == {*codec.STATUS_FIELDS, "tasks", "task_groups"} - LEFT_OUT


def test_every_field_has_the_value_that_was_stored(directory: Path) -> None:
    kept = records(directory)
    retry = kept["held-retry"]
    assert (retry.held_retry, retry.job_id) == (True, "2")
    midnight = retry.created_at + timedelta(seconds=120)
    assert retry.unanswered_at == midnight - timedelta(seconds=400)
    assert retry.last_submit_at == midnight - timedelta(seconds=120)
    assert kept["node-failed"].ending_since == midnight - timedelta(seconds=5)
    assert kept["absent"].absent_since == midnight - timedelta(seconds=20)
    assert kept["running"].appends
    assert (kept["running"].run, kept["running"].key.attempt) == (2, 2)
    running = kept["running"].status
    assert (running.nodes, running.restarts, running.requeue) == ("n[1-2]", 1, False)
    outside = kept["outside-limits"]
    assert outside.limits == Limits(frozenset({"physics"}), frozenset({"debug"}))
    assert outside.cancel_requested
    assert "partition gpu" in outside.limits_exceeded
    assert kept["array"].first_seen_late
    assert kept["array"].status.tasks == (
        *(TaskObservation(index, f"12_{index}", "COMPLETED", 0) for index in range(3)),
        TaskObservation(3, "12_3", "FAILED", 3),
        TaskObservation(4, "99", "RUNNING", None, None, 1),
    )
    assert (kept["array"].status.array_size, kept["array"].status.pending_tasks) == (8, 3)
    assert kept["cancelled"].status.cancelled_by == ALICE.uid
    assert kept["failed"].status.exit_code == 3
    assert kept["failed-in-queue"].status.signal == 9
    assert kept["failed-in-queue"].in_queue
    assert kept["credentials"].credentials
    assert kept["held"].hold
    assert kept["submitted"].warnings == ("sbatch: one",)
    assert not kept["submitted"].confirmed
    assert kept["env-changed"].spec_digest == "d1"
    assert kept["recovered"].body_digest is None
    assert kept["recovered"].final_at == midnight - timedelta(seconds=49)


# ------------------------------------------------------------------------------------- the server goes on


def queue_at_midnight(slurm: SimulatedSlurm) -> None:
    """The queue and the accounting that the next server finds."""
    kept = {
        "intent-arrived": ("1", "PENDING", "Priority"),
        "intent-retried": ("15", "PENDING", HELD),
        "held-retry": ("2", "PENDING", HELD),
        "pending": ("3", "RUNNING", ""),
        "held": ("4", "PENDING", HELD),
        "running": ("5", "COMPLETED", ""),
        "suspended": ("6", "REQUEUE_HOLD", HELD),
        "cancelling": ("7", "RUNNING", ""),
        "node-failed": ("8", "NODE_FAIL", ""),
        "absent": ("9", "COMPLETED", ""),
        "outside-limits": ("11", "PENDING", "Priority"),
        "submitted": ("13", "PENDING", "Priority"),
        "env-changed": ("14", "RUNNING", ""),
        "failed-in-queue": ("22", "FAILED", ""),
    }
    marks = Marks(SECRET, "hpc1")
    for key, (job_id, state, reason) in kept.items():
        attempt = 2 if key == "running" else 1
        body = {"held": request(hold=True), "env-changed": request(env={"TOKEN": "old"}, spec_digest="d1")}
        body_id = marks.body_id(body.get(key, request()))
        slurm.put(
            Observation(
                job_id=job_id,
                uid=ALICE.uid,
                user=ALICE.name,
                mark=marks.make(JobKey(OWNER, key, attempt), body_id, ALICE.uid),
                state=state,
                reason=reason,
                live=True,
                name="redbox",
                nodes="" if state == "PENDING" else "n1",
                exit_code=0 if state == "COMPLETED" else None,
                submitted_at=slurm.clock.now() - timedelta(seconds=110),
                ended_at=slurm.clock.now() if state in ("COMPLETED", "FAILED", "NODE_FAIL") else None,
            )
        )
    slurm.jobs.pop("9")
    array = replace(
        slurm.jobs["2"], job_id="12", mark=marks.make(JobKey(OWNER, "array"), marks.body_id(request()), 2001)
    )
    running = tuple(TaskObservation(index, f"12_{index}", "RUNNING") for index in range(5, 8))
    slurm.put(replace(array, state="RUNNING", reason="", array_size=3, tasks=running))
    slurm.next_id = 100


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    world = World(directory, queue_at_midnight)
    world.advance(100)
    yield world
    world.crash()


def phase(world: World, key: str, attempt: int = 1) -> Phase:
    return world.run(world.jobs.get(caller(), key, attempt)).phase


def test_a_submit_without_an_answer_is_looked_for_and_found_or_submitted_once_more_held(world: World) -> None:
    assert world.run(world.jobs.get(caller(), "intent-arrived")).job_id == "1"
    assert phase(world, "intent-cancelled") is Phase.CANCELLED
    for key in ("intent", "doubtful"):
        with pytest.raises(JobNotFound):
            world.run(world.jobs.get(caller(), key))
        job, created = world.run(world.jobs.put(caller(), key, 1, request()))
        assert created
        assert job.job_id is not None
        assert world.slurm.jobs[job.job_id].reason == HELD
        world.advance(400)
        assert world.slurm.jobs[job.job_id].reason != HELD


def test_held_retries_are_released_and_a_job_that_its_user_holds_is_not(world: World) -> None:
    assert {job_id for act, job_id in world.slurm.acts if act is JobAction.RELEASE} == {"2", "15"}
    assert world.slurm.jobs["4"].reason == HELD


def test_states_go_on_from_where_they_were(world: World) -> None:
    assert phase(world, "pending") is Phase.RUNNING
    assert phase(world, "running", 2) is Phase.SUCCEEDED
    assert phase(world, "suspended") is Phase.SUSPENDED
    assert phase(world, "node-failed") is Phase.FAILED
    assert phase(world, "absent") is Phase.SUCCEEDED
    assert phase(world, "absent-lost") is Phase.LOST
    assert phase(world, "submitted") is Phase.PENDING
    for key in ("succeeded", "failed", "failed-in-queue", "cancelled", "lost", "never", "credentials"):
        assert phase(world, key) is STAGES[key][1]
    array = world.run(world.jobs.get(caller(), "array")).array
    assert array is not None
    assert (array.succeeded, array.failed) == (3, 1)


def test_journaled_cancels_are_sent_and_credentials_are_removed(world: World) -> None:
    assert {job_id for act, job_id in world.slurm.acts if act is JobAction.CANCEL} == {"7", "11"}
    assert phase(world, "cancelling") is Phase.CANCELLED
    assert "partition gpu" in (world.run(world.jobs.get(caller(), "outside-limits")).message or "")
    marks = [record.mark for record in world.jobs if record.key.key == "credentials"]
    assert world.slurm.tidied == marks


def test_a_put_of_a_journaled_job_is_the_same_job(world: World) -> None:
    job, created = world.run(world.jobs.put(caller(), "succeeded", 1, request()))
    assert (job.job_id, created, job.env_changed) == ("20", False, False)
    rotated = request(env={"TOKEN": "new"}, spec_digest="d1")
    job, created = world.run(world.jobs.put(caller(), "env-changed", 1, rotated))
    assert (job.job_id, created, job.env_changed) == ("14", False, True)
    with pytest.raises(JobConflict):
        world.run(world.jobs.put(caller(), "succeeded", 1, request("#!/bin/sh\nfalse\n")))


def test_a_rebuilt_row_is_claimed_by_its_owner(world: World) -> None:
    assert world.run(world.jobs.get(caller(), "recovered")).job_id == "26"


@pytest.mark.parametrize(
    ("key", "attempt"), [("buried", 1), ("buried-all", 7), ("buried-by-operator", 1), ("never", 1)]
)
def test_tombstones_and_cancelled_intents_refuse_their_submit(world: World, key: str, attempt: int) -> None:
    with pytest.raises(Tombstoned):
        world.run(world.jobs.put(caller(), key, attempt, request()))
    assert not [job for job in world.slurm.ever if job.mark.startswith(f"rb1.{key}.")]


def test_watchers_of_the_old_server_resume(world: World) -> None:
    world.jobs.watch(operator(), "0123456789ab.26")


def test_the_journal_is_opened_once_more_as_it_was_left(world: World) -> None:
    before = {record.key: record for record in world.jobs}
    world.restart()
    assert {record.key: record for record in world.jobs} == before
