"""Where a session goes, and whether its job still runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.core.observations import TaskObservation
from redbox.jobs.errors import JobConflict, NotAcceptable
from redbox.sessions import targets
from redbox.sessions.targets import (
    check_running,
    choose_target,
    has_one_node,
    is_ending,
    is_suspended,
    still_runs,
)
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Phase
from tests.redbox.jobs.factories import after, seen

RUNNING = after(seen("RUNNING", nodes="n[1-2000]"))


def test_a_session_goes_to_the_jobs_first_node() -> None:
    assert choose_target(RUNNING, JOB_STATES, None, None).node == "n1"
    assert choose_target(RUNNING, JOB_STATES, "n7", None).node == "n7"


@pytest.mark.parametrize(
    ("node", "target"),
    [(None, ("7+0", "n1")), ("n2", ("7+0", "n2")), ("n3", ("7+1", "n3")), ("gpu1", ("7+2", "gpu1"))],
)
def test_a_session_in_a_het_job_is_in_the_first_component_that_has_its_node(
    node: str | None, target: tuple[str, str]
) -> None:
    """Slurm may put two components on one node."""
    components = ("n[1-2]", "n[2-3]", "gpu1")
    het = after(seen("RUNNING", nodes=",".join(components), component_nodes=components))
    found = choose_target(het, JOB_STATES, node, None)
    assert (found.job_id, found.node) == target
    assert still_runs(het, found, JOB_STATES, None)
    with pytest.raises(NotAcceptable, match="Node n9 is not one of the job's nodes: n1, n2,"):
        choose_target(het, JOB_STATES, "n9", None)


@pytest.mark.parametrize(
    ("nodes", "one"), [("n1", True), ("n[1-2]", False), ("n1,gpu1", False), ("n1,n1", False), ("", False)]
)
def test_the_node_of_a_job_of_one_node_is_certain(nodes: str, one: bool) -> None:  # noqa: FBT001
    assert has_one_node(after(seen("RUNNING", nodes=nodes))) is one


def test_the_node_of_an_array_is_its_tasks() -> None:
    record = after(seen("RUNNING", nodes="n1"))
    array = replace(record, status=replace(record.status, array_size=2))
    assert not has_one_node(array)


def test_an_open_session_looks_at_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    target = choose_target(RUNNING, JOB_STATES, None, None)

    def refuse(_: str) -> tuple[str, ...]:
        raise AssertionError("the nodes were expanded")

    monkeypatch.setattr(targets, "expand", refuse)
    assert still_runs(RUNNING, target, JOB_STATES, None)


@pytest.mark.parametrize(
    ("state", "runs"),
    [
        ("RUNNING", True),
        ("COMPLETING", True),
        ("SUSPENDED", True),
        ("REQUEUE_HOLD", False),
        ("SPECIAL_EXIT", False),
        ("COMPLETED", False),
        ("PENDING", False),
    ],
)
def test_a_session_lasts_as_long_as_its_job(state: str, runs: bool) -> None:  # noqa: FBT001
    target = choose_target(RUNNING, JOB_STATES, None, None)
    record = after(seen(state, nodes="n[1-2000]"), record=RUNNING)
    assert still_runs(record, target, JOB_STATES, None) is runs


@pytest.mark.parametrize(
    ("state", "cure"), [("SUSPENDED", "until it is resumed"), ("REQUEUE_HOLD", "until it is released")]
)
def test_what_stands_still_is_not_entered_and_says_what_to_wait_for(state: str, cure: str) -> None:
    record = after(seen(state, nodes="n1"), record=RUNNING)
    with pytest.raises(JobConflict, match=cure):
        choose_target(record, JOB_STATES, None, None)
    assert is_suspended(record, JOB_STATES, None) is (state == "SUSPENDED")


def test_a_session_ends_with_its_run() -> None:
    target = choose_target(RUNNING, JOB_STATES, None, None)
    again = after(seen("RUNNING", nodes="n1", restarts=1), record=RUNNING)
    assert not still_runs(again, target, JOB_STATES, None)
    assert not still_runs(None, target, JOB_STATES, None)


def test_a_session_lasts_until_its_job_that_is_cancelled_has_ended() -> None:
    """A job may have minutes to end in order, and Slurm may not answer: no other session begins meanwhile."""
    target = choose_target(RUNNING, JOB_STATES, None, None)
    cancelled = replace(RUNNING, cancel_requested=True)
    assert still_runs(cancelled, target, JOB_STATES, None)
    with pytest.raises(JobConflict, match="is ending"):
        check_running(cancelled, JOB_STATES)
    with pytest.raises(JobConflict, match="is ending"):
        choose_target(cancelled, JOB_STATES, None, None)
    ended = after(seen("CANCELLED", nodes="n1"), record=cancelled)
    assert not still_runs(ended, target, JOB_STATES, None)


def test_of_an_array_the_task_counts() -> None:
    tasks = tuple(TaskObservation(index, str(index + 10), "RUNNING") for index in range(3))
    array = replace(RUNNING, status=replace(RUNNING.status, array_size=3, tasks=tasks))
    target = choose_target(array, JOB_STATES, None, 1)
    assert target.job_id == "11"
    assert still_runs(array, target, JOB_STATES, 1)
    stopped = (tasks[0], replace(tasks[1], state="SUSPENDED"), tasks[2])
    suspended = replace(array, status=replace(array.status, tasks=stopped))
    assert [is_suspended(suspended, JOB_STATES, task) for task in range(3)] == [False, True, False]
    assert still_runs(suspended, target, JOB_STATES, 1)
    completing = (tasks[0], replace(tasks[1], state="COMPLETING"), tasks[2])
    ending = replace(array, status=replace(array.status, tasks=completing))
    assert [is_ending(ending, JOB_STATES, task) for task in range(3)] == [False, True, False]
    ended = replace(array, status=replace(array.status, tasks=(tasks[0], tasks[2])))
    assert not still_runs(ended, target, JOB_STATES, 1)
    for state, phase in (("COMPLETING", Phase.RUNNING), ("SUSPENDED", Phase.SUSPENDED)):  # of the others
        of_others = replace(ended, phase=phase, status=replace(ended.status, state=state))
        assert not still_runs(of_others, target, JOB_STATES, 1)
        assert not is_suspended(of_others, JOB_STATES, 1)
    with pytest.raises(JobConflict, match="Task 1"):
        choose_target(ended, JOB_STATES, None, 1)


@pytest.mark.parametrize(("state", "phase"), [("SUSPENDED", Phase.SUSPENDED), ("COMPLETING", Phase.RUNNING)])
def test_a_task_is_entered_and_its_sessions_go_on_whatever_the_array_is_as_a_whole(
    state: str, phase: Phase
) -> None:
    """That is what one of its other tasks is."""
    tasks = (TaskObservation(0, "7", state), TaskObservation(1, "8", "RUNNING"))
    array = replace(
        RUNNING, phase=phase, status=replace(RUNNING.status, state=state, array_size=2, tasks=tasks)
    )
    check_running(array, JOB_STATES)
    target = choose_target(array, JOB_STATES, None, 1)
    assert still_runs(array, target, JOB_STATES, 1)
    with pytest.raises(JobConflict, match="Task 0 is "):
        choose_target(array, JOB_STATES, None, 0)
