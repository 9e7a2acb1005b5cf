"""An array's tasks end one by one, and the queue forgets each five minutes later: red-box forgets none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.core.domain import JobKey, Owner, UnixUser
from redbox.core.observations import Observation, ObservedStatus, TaskObservation
from redbox.jobs.poll.missing_jobs import AbsenceEvidence, after_absence
from redbox.jobs.record.codec import FIELDS_OF_A_GROUP, from_text, to_text
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.record.state_machine import merge_tasks
from redbox_api.models import FINAL_PHASES, ArrayCounts, Job, Phase
from tests.redbox.jobs.factories import MACHINE
from tests.redbox.jobs.harness import World, caller, lose_and_recover, request

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RECORD = JobRecord(
    key=JobKey(Owner("kube", "ns", "default", "u"), "key"),
    user=UnixUser("alice", 2001),
    mark="rb1.x",
    body_id="b",
    created_at=NOW,
    last_submit_at=NOW,
    stage=Stage.BOUND,
    job_id="7",
    bound_at=NOW,
    phase=Phase.PENDING,
)
NONE = range(0)


def task(index: int, state: str, leader: str = "1") -> TaskObservation:
    code = {"COMPLETED": 0, "FAILED": 3}.get(state)
    return TaskObservation(index, f"{leader}_{index}", state, code)


def array(job: Observation, states: Mapping[int, str], waiting: range = NONE) -> Observation:
    """The job as an array of which these tasks are to be seen."""
    tasks = tuple(task(index, state, job.job_id) for index, state in sorted(states.items()))
    alive = [one.state for one in tasks if one.state == "RUNNING"] or ["PENDING"] * len(waiting)
    return replace(
        job,
        state=next(iter(alive), tasks[-1].state if tasks else "PENDING"),
        nodes="n1",
        tasks=tasks,
        pending_tasks=len(waiting),
        waiting=(waiting,) if waiting else (),
        array_size=len(tasks) + len(waiting),
    )


def show(world: World, states: Mapping[int, str], waiting: range = NONE) -> None:
    """What the queue has of the array from now on, and nothing else has."""
    world.slurm.jobs["1"] = array(world.slurm.jobs["1"], states, waiting)


def account(world: World, states: Mapping[int, str]) -> None:
    """What the accounting tells of it from now on."""
    row = array(world.slurm.jobs["1"], states)
    world.slurm.rows = [(world.clock.elapsed, replace(row, live=False))]


def submitted(world: World, states: Mapping[int, str], waiting: range = NONE) -> None:
    world.run(world.jobs.put(caller(), "key", 1, request()))
    show(world, states, waiting)
    account(world, {})
    world.advance(20)


def current(world: World) -> Job:
    return world.run(world.jobs.get(caller(), "key"))


def counts(world: World) -> tuple[int, int, int, int, int, int]:
    found = current(world).array
    assert isinstance(found, ArrayCounts)
    return (found.total, found.pending, found.running, found.succeeded, found.failed, found.cancelled)


def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the accounting was asked, from now on."""
    times: list[float] = []
    ask = world.slurm.history

    async def counted(*args: Any, **facts: Any) -> Any:
        times.append(world.clock.elapsed)
        return await ask(*args, **facts)

    monkeypatch.setattr(world.slurm, "history", counted)
    return times


# ---------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("accounting", [True, False])
def test_a_restart_forgets_no_task_that_was_seen_to_end(world: World, *, accounting: bool) -> None:
    world.slurm.accounting = accounting
    submitted(world, {0: "COMPLETED", 1: "FAILED", 2: "RUNNING"}, range(3, 4))
    show(world, {2: "RUNNING"}, range(3, 4))  # the queue has forgotten the first two
    world.advance(20)
    world.restart()
    assert counts(world) == (4, 1, 1, 1, 1, 0)  # also before the first look
    world.advance(20)
    assert counts(world) == (4, 1, 1, 1, 1, 0)
    show(world, {2: "COMPLETED", 3: "COMPLETED"})
    world.advance(20)
    job = current(world)
    assert (job.phase, job.state, job.exit_code) == (Phase.FAILED, "FAILED", 3)
    assert counts(world) == (4, 0, 0, 3, 1, 0)


def test_tasks_that_ended_while_red_box_was_away_are_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(world, {0: "RUNNING", 1: "RUNNING", 2: "RUNNING"}, range(3, 6))
    world.crash()
    show(world, {4: "RUNNING"}, range(5, 6))
    ends = {0: "COMPLETED", 1: "FAILED", 2: "COMPLETED", 3: "CANCELLED"}
    account(world, ends | {4: "COMPLETED", 5: "COMPLETED"})  # older than the look or newer: the queue counts
    times = asked(world, monkeypatch)
    world.start()
    world.advance(60)
    assert counts(world) == (6, 1, 1, 2, 1, 1)
    assert len(times) == 1
    show(world, {4: "COMPLETED", 5: "COMPLETED"})
    world.advance(20)
    assert (current(world).phase, current(world).exit_code) == (Phase.FAILED, 3)


def test_an_array_whose_last_tasks_are_in_the_queue_is_not_over_before_the_others_are_known(
    world: World,
) -> None:
    submitted(world, {0: "RUNNING"}, range(1, 3))
    world.crash()
    show(world, {2: "COMPLETED"})
    world.start()
    world.advance(30)
    assert current(world).phase not in FINAL_PHASES
    account(world, {0: "COMPLETED", 1: "COMPLETED", 2: "COMPLETED"})  # its rows were late
    world.advance(30)
    assert (current(world).phase, current(world).message) == (Phase.SUCCEEDED, None)


@pytest.mark.parametrize("accounting", [True, False])
def test_what_nobody_can_tell_of_is_asked_for_ever_more_rarely(
    world: World, monkeypatch: pytest.MonkeyPatch, *, accounting: bool
) -> None:
    world.slurm.accounting = accounting
    submitted(world, {0: "RUNNING", 1: "RUNNING"})
    times = asked(world, monkeypatch)
    show(world, {1: "RUNNING"})  # no look has seen how task 0 ended
    world.advance(3600)
    assert 10 < len(times) < 40
    assert times[-1] - times[-2] > 300
    assert current(world).phase is Phase.RUNNING


def test_a_task_that_waits_again_after_a_requeue_is_counted_once_also_after_a_restart(world: World) -> None:
    submitted(world, {0: "FAILED", 1: "RUNNING"}, range(2, 4))
    show(world, {1: "RUNNING"}, range(2, 4))
    world.advance(20)
    world.restart()
    world.advance(20)
    assert counts(world) == (4, 2, 1, 0, 1, 0)
    account(world, {0: "FAILED"})
    for states, waiting in (({0: "PENDING", 1: "RUNNING"}, range(2, 4)), ({1: "RUNNING"}, range(0, 4, 2))):
        show(world, states, waiting)  # by itself, or joined by squeue to those that never began
        if 0 in waiting:
            world.slurm.jobs["1"] = replace(
                world.slurm.jobs["1"], waiting=(range(1), range(2, 4)), pending_tasks=3, array_size=4
            )
        world.advance(20)
        assert counts(world) == (4, 3, 1, 0, 0, 0)
        world.restart()
        world.advance(20)
        assert counts(world) == (4, 3, 1, 0, 0, 0)


# -------------------------------------------------------------------------------------- arrays seen late


def test_an_array_that_was_first_seen_late_has_not_succeeded_before_its_first_tasks_are_known(
    world: World,
) -> None:
    world.slurm.poll_hangs = True
    world.run(world.jobs.put(caller(), "key", 1, request()))
    world.crash()
    world.slurm.poll_hangs = False
    world.clock.advance_to(1000)
    show(world, {2: "COMPLETED"})
    world.slurm.accounting_down = True
    world.start()
    world.advance(100)
    assert current(world).phase not in FINAL_PHASES
    world.restart()
    account(world, {0: "FAILED", 1: "COMPLETED", 2: "COMPLETED"})
    world.slurm.accounting_down = False
    world.advance(100)
    assert current(world).phase is Phase.FAILED
    assert counts(world) == (3, 0, 0, 2, 1, 0)


def test_without_accounting_an_array_that_was_first_seen_late_says_what_may_be_missing(world: World) -> None:
    world.slurm.accounting = False
    world.slurm.poll_hangs = True
    world.run(world.jobs.put(caller(), "key", 1, request()))
    world.crash()
    world.slurm.poll_hangs = False
    world.clock.advance_to(1000)
    show(world, {2: "COMPLETED"})
    world.start()
    world.advance(20)
    job = current(world)
    assert job.phase is Phase.SUCCEEDED
    assert "may have forgotten tasks" in job.warnings[0]


def test_a_lost_journal_is_rebuilt_with_the_tasks_that_the_queue_has_forgotten(world: World) -> None:
    submitted(world, {0: "FAILED", 1: "RUNNING"}, range(2, 3))
    account(world, {0: "FAILED", 2: "COMPLETED"})
    show(world, {1: "RUNNING"}, range(2, 3))
    lose_and_recover(world)
    assert counts(world) == (3, 1, 1, 0, 1, 0)


# ------------------------------------------------------------------------------------------------ absence


def test_an_array_of_which_the_accounting_lacks_tasks_is_lost_after_ten_minutes(world: World) -> None:
    submitted(world, {0: "RUNNING", 1: "RUNNING"}, range(2, 3))
    account(world, {0: "COMPLETED", 2: "COMPLETED"})
    world.slurm.purge("1")
    world.advance(300)
    assert current(world).phase not in FINAL_PHASES
    world.advance(400)
    job = current(world)
    assert job.phase is Phase.LOST
    assert "does not show the end of all its tasks" in (job.message or "")


def test_late_rows_of_an_arrays_tasks_are_waited_for() -> None:
    first = MACHINE.observe(RECORD, array(seen("RUNNING"), {0: "RUNNING", 1: "RUNNING"}), NOW)
    half = AbsenceEvidence(
        replace(array(seen("COMPLETED"), {0: "COMPLETED"}), live=False), accounting=True, stranger=False
    )
    later = NOW + timedelta(seconds=300)
    record = after_absence(after_absence(first, half, NOW, MACHINE), half, later, MACHINE)
    assert (record.final, record.absent_since) == (False, NOW)
    row = replace(array(seen("COMPLETED"), {0: "COMPLETED", 1: "COMPLETED"}), live=False)
    whole = AbsenceEvidence(row, accounting=True, stranger=False)
    assert after_absence(record, whole, later, MACHINE).phase is Phase.SUCCEEDED


def seen(state: str) -> Observation:
    return Observation(job_id="7", uid=2001, mark="rb1.x", state=state, live=True)


# ------------------------------------------------------------------------------------------------ the rows

STATES = st.sampled_from(["PENDING", "RUNNING", "COMPLETED", "FAILED"])
TASKS = st.dictionaries(st.integers(0, 60), st.tuples(STATES, st.sampled_from(["7", "9"])))


@given(TASKS)
def test_whatever_the_tasks_the_journal_gives_them_back(tasks: dict[int, tuple[str, str]]) -> None:
    listed = tuple(task(index, *tasks[index]) for index in sorted(tasks))
    record = replace(RECORD, status=ObservedStatus(array_size=61, tasks=listed))
    assert from_text(record.key, 3, to_text(record)) == replace(record, revision=3)


def test_a_row_of_an_earlier_release_is_read_with_its_tasks() -> None:
    tasks = (task(0, "COMPLETED", "7"), task(3, "FAILED", "7"))
    record = replace(
        RECORD, phase=Phase.FAILED, status=ObservedStatus(array_size=4, tasks=tasks), final_at=NOW
    )
    row = json.loads(to_text(replace(record, status=ObservedStatus(array_size=4))))
    row["seen"]["tasks"] = [[0, "7_0", "COMPLETED", 0, None], [3, "7_3", "FAILED", 3, None]]
    assert from_text(record.key, 0, json.dumps(row)) == record


def test_a_row_of_a_later_release_is_read_without_what_it_knows_more_of_tasks() -> None:
    record = replace(RECORD, status=ObservedStatus(array_size=2, tasks=(task(1, "COMPLETED", "7"),)))
    row = json.loads(to_text(record))
    known = len(FIELDS_OF_A_GROUP) + 1
    row["seen"]["task_groups"] = [
        [*group, *[""] * (known - len(group)), "more"] for group in row["seen"]["task_groups"]
    ]
    assert from_text(record.key, 0, json.dumps(row)) == record


def test_what_a_tasks_output_is_named_by_is_journaled_and_stays_known() -> None:
    """Old accounting shows neither patterns nor, therefore, names."""
    named = replace(task(0, "RUNNING", "7"), own_id="8", node="n3")
    shown = merge_tasks((named,), (task(0, "COMPLETED", "7"), task(1, "RUNNING", "7")))
    assert shown == (replace(named, state="COMPLETED", exit_code=0), task(1, "RUNNING", "7"))
    record = replace(RECORD, status=ObservedStatus(array_size=2, tasks=shown))
    assert from_text(record.key, 3, to_text(record)) == replace(record, revision=3)


def test_the_row_of_an_array_of_fifty_thousand_is_short() -> None:
    running = set(range(30_000, 30_200)) - {30_007, 30_100}
    states = {index: "RUNNING" if index in running else "COMPLETED" for index in range(30_250)}
    tasks = tuple(task(index, state, "7") for index, state in states.items())
    record = replace(RECORD, status=ObservedStatus(array_size=50_000, pending_tasks=19_750, tasks=tasks))
    assert len(to_text(record)) < 1000
