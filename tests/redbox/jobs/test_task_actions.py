"""One task of an array, to act on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from redbox.core.domain import JobKey, Owner, UnixUser
from redbox.core.observations import ObservedStatus, TaskObservation
from redbox.core.workload_manager import JobAction
from redbox.jobs.errors import JobConflict, NotAcceptable
from redbox.jobs.job_actions import handle_for, may_act_for_others, with_cancelled_task
from redbox.jobs.record.record import JobRecord, Stage
from redbox_api.models import Phase
from tests.redbox.jobs.harness import caller, operator

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ARRAY = JobRecord(
    key=JobKey(Owner("kube", "ns", "default", "u"), "key"),
    user=UnixUser("alice", 2001),
    mark="rb1.x",
    body_id="b",
    created_at=NOW,
    last_submit_at=NOW,
    stage=Stage.BOUND,
    job_id="7",
    bound_at=NOW,
    phase=Phase.RUNNING,
    status=ObservedStatus(array_size=9),
)


def test_a_tasks_handle_has_its_own_id_and_the_arrays_mark() -> None:
    handle = handle_for(ARRAY, JobAction.CANCEL_TASK, 3)
    assert (handle.job_id, handle.mark) == ("7_3", "rb1.x")


def test_a_job_that_is_no_array_or_has_no_id_has_no_task() -> None:
    with pytest.raises(NotAcceptable, match="no task 3"):
        handle_for(replace(ARRAY, status=ObservedStatus()), JobAction.CANCEL_TASK, 3)
    with pytest.raises(JobConflict):
        handle_for(replace(ARRAY, job_id=None), JobAction.CANCEL_TASK, 3)


def test_an_operator_cancels_a_task_as_it_cancels_the_whole_job() -> None:
    assert may_act_for_others(operator(), JobAction.CANCEL_TASK)
    assert not may_act_for_others(caller(), JobAction.SIGNAL)


def test_a_task_that_was_cancelled_while_it_waited_has_ended_although_slurm_shows_no_trace_of_it() -> None:
    """Else the array waits ten minutes for its end."""
    running = TaskObservation(1, "7_1", "RUNNING")
    record = replace(ARRAY, status=ObservedStatus(array_size=9, tasks=(running,)))
    cancelled = with_cancelled_task(record, 4)
    assert [(task.index, task.state) for task in cancelled.status.tasks] == [(1, "RUNNING"), (4, "CANCELLED")]
    assert with_cancelled_task(record, 1) == record
