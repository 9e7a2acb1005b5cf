"""A requeue that an annotation asks for: sent for the run that it names, once, with an event."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from redbox_api.errors import Busy, Conflict, NotAllowed, Refused
from redbox_api.models import ArrayCounts, Phase, Problem
from redbox_kube.api.events import NORMAL, Event
from redbox_kube.status.event_writer import EVENTS_AT_ONCE
from redbox_operator.api.slurmjob import path_of
from redbox_shared.requested_actions import (
    CANCEL,
    CANCEL_TASKS,
    CANCEL_TASKS_REFUSED,
    MOST_TASKS,
    REQUEUE,
    REQUEUE_REFUSED,
    of_run,
)
from tests.operator.harness import Stand


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def refusal(kind: type[Refused], status: int) -> Refused:
    return kind(
        Problem(type="t", title="The caller may not do this", status=status, detail="no role requeue")
    )


async def test_a_running_job_is_requeued_once_by_the_run_that_the_annotation_names(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=2)
    await stand.change(annotations={REQUEUE: of_run("7", 2)})
    await stand.look()
    assert stand.link.done == ["requeue 1 run 2"]
    assert stand.event_reasons()[-1] == "Requeued"


@pytest.mark.parametrize("value", ["7/1", "7/3", "8/2", "", "now", "7/22"])
async def test_an_annotation_about_another_run_is_left_alone(stand: Stand, value: str) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=2)
    await stand.change(annotations={REQUEUE: value})
    assert stand.link.done == []


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.SUCCEEDED])
async def test_a_job_that_does_not_run_is_not_requeued(stand: Stand, phase: Phase) -> None:
    await stand.apply()
    await stand.at_redbox(phase, run=1)
    await stand.change(annotations={REQUEUE: of_run("7", 1)})
    assert stand.link.done == []


@pytest.mark.parametrize("refused", [refusal(NotAllowed, 403), refusal(Conflict, 409)])
async def test_a_refusal_is_an_event_with_its_words_and_is_not_repeated(
    stand: Stand, refused: Refused
) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=1)
    stand.link.refusal = refused
    await stand.change(annotations={REQUEUE: of_run("7", 1)})
    await stand.look()
    assert stand.link.done == ["requeue 1 run 1"]
    await stand.change(annotations={REQUEUE: of_run("7", 1, "again")})
    assert stand.link.done == ["requeue 1 run 1"] * 2
    (event, _) = [event for event in stand.api.of_kind("Event") if event["reason"] == REQUEUE_REFUSED]
    assert event["message"] == "7/1: no role requeue"


async def test_what_may_succeed_later_is_sent_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=1)
    stand.link.refusal = refusal(Busy, 503)
    await stand.change(annotations={REQUEUE: of_run("7", 1)})
    stand.link.refusal = None
    await stand.look()
    assert stand.link.done == ["requeue 1 run 1"] * 2
    assert stand.event_reasons()[-1] == "Requeued"


# ---------------------------------------------------------------------------------------------- cancel

WISH = {CANCEL: "true"}
TERM: dict[str, Any] = {"state": "CANCELLED", "reason": "None", "message": "It was cancelled."}


async def test_a_running_job_is_cancelled_once_and_its_record_stays(stand: Stand) -> None:
    await stand.apply(backoffLimit=3)
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(annotations=WISH)
    assert stand.link.done == ["cancel farm/default all"]
    assert (stand.status["phase"], stand.status["reason"]) == ("Running", "Cancelling")
    await stand.at_redbox(Phase.RUNNING, cancel_requested=True)
    assert stand.link.done == ["cancel farm/default all"]
    await stand.at_redbox(Phase.CANCELLED, **TERM)
    await stand.look()
    assert (stand.status["phase"], stand.status["jobID"]) == ("Cancelled", "7")
    assert stand.conditions["Finished"] == ("True", "Cancelled")
    assert stand.conditions["Submitted"][0] == "True"
    assert stand.pod_names == ["cow-job"]  # its log is read to the end


@pytest.mark.parametrize("end", [Phase.FAILED, Phase.LOST, Phase.SUCCEEDED])
async def test_no_attempt_follows_an_end_that_came_before_the_cancel(stand: Stand, end: Phase) -> None:
    await stand.apply(backoffLimit=3, retryLost=True)
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(annotations=WISH)
    await stand.at_redbox(end, state="COMPLETED", exit_code=1)
    assert stand.conditions["Finished"] == ("True", end.value)
    assert stand.status["phase"] == ("Succeeded" if end is Phase.SUCCEEDED else "Failed")
    assert stand.status["attempts"] == 1


async def test_a_cancel_between_two_attempts_ends_it_without_the_next(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.FAILED, exit_code=1)
    assert stand.status["reason"] == "Retrying"
    await stand.change(annotations=WISH)
    stand.now += timedelta(hours=1)
    await stand.look()
    assert (stand.status["phase"], stand.status["attempts"]) == ("Cancelled", 1)
    assert "before the next one" in stand.status["message"]
    assert stand.pod_names == ["cow-job"]


async def test_a_suspended_job_that_is_cancelled_does_not_start_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(spec={"suspend": True})
    await stand.at_redbox(Phase.CANCELLED, **TERM)
    assert stand.status["phase"] == "Suspended"
    await stand.change(annotations=WISH, spec={"suspend": False})
    stand.now += timedelta(hours=1)
    await stand.look()
    assert stand.conditions["Finished"] == ("True", "Cancelled")
    assert stand.status["attempts"] == 1


async def test_a_job_that_is_being_submitted_is_refused_at_redbox_and_its_pod_goes(stand: Stand) -> None:
    await stand.apply()
    assert stand.pod_names == ["cow-job"]
    await stand.change(annotations=WISH)
    assert stand.link.done == ["cancel farm/default all"]
    await stand.look()
    assert stand.pod_names == []
    assert (stand.status["phase"], stand.status["reason"]) == ("Cancelled", "Cancelled")
    assert stand.conditions["Submitted"] == ("False", "Cancelled")
    assert stand.conditions["Finished"] == ("True", "Cancelled")
    stand.start()
    await stand.look()
    assert stand.pod_names == []
    assert stand.status["phase"] == "Cancelled"


async def test_a_submit_in_flight_that_redbox_has_is_waited_for(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUBMITTING, job_id=None, state=None)
    await stand.change(annotations=WISH)
    assert (stand.status["phase"], stand.status["reason"]) == ("Pending", "Cancelling")
    assert stand.pod_names == ["cow-job"]
    await stand.at_redbox(Phase.CANCELLED, job_id=None, state=None, reason="Cancelled", message="Never.")
    assert stand.conditions["Submitted"] == ("False", "Cancelled")
    assert stand.conditions["Finished"] == ("True", "Cancelled")


async def test_an_end_that_only_the_cancel_shows_is_the_end(stand: Stand) -> None:
    """Red-box's watch has not shown yet that the job ran and succeeded."""
    await stand.apply()
    stand.ended_unseen(Phase.SUCCEEDED, exit_code=0)
    await stand.change(annotations=WISH)
    assert stand.conditions["Finished"] == ("True", "Succeeded")


async def test_what_was_never_submitted_needs_no_pod_and_no_redbox(stand: Stand) -> None:
    stand.links.clear()
    await stand.apply()
    assert stand.status["phase"] == "Pending"
    await stand.change(annotations=WISH)
    assert (stand.status["phase"], stand.pod_names) == ("Cancelled", [])
    stand.links["hpc1"] = stand.link
    await stand.look()
    assert (stand.status["phase"], stand.pod_names) == ("Cancelled", [])


async def test_a_waiting_dependency_ends_with_the_cancel(stand: Stand) -> None:
    await stand.apply(dependsOn=[{"name": "other"}])
    assert stand.status["reason"] == "DependencyMissing"
    await stand.change(annotations=WISH)
    assert stand.link.done == ["cancel farm/default all"]
    assert stand.status["phase"] == "Cancelled"
    stand.has_other("other", "Succeeded")
    await stand.look()
    assert stand.pod_names == []


async def test_a_redbox_that_is_away_gets_the_cancel_when_it_is_back(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    await stand.change(annotations=WISH)
    assert (stand.status["phase"], stand.status["reason"]) == ("Running", "Cancelling")
    assert "red-box of SlurmCluster hpc1 is away" in stand.status["message"]
    stand.link.away = False
    await stand.look()
    assert stand.link.done == ["cancel farm/default all"]


async def test_a_cancel_that_redbox_refuses_is_said_and_sent_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.refusal = refusal(NotAllowed, 403)
    await stand.change(annotations=WISH)
    assert "answers: no role requeue" in stand.status["message"]
    assert await stand.look() is not None


async def test_an_ended_job_keeps_its_end(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED, exit_code=0)
    before = stand.status
    await stand.change(annotations=WISH)
    assert stand.status == before
    assert stand.link.done == []


async def test_nothing_else_is_done_to_a_job_that_is_being_cancelled(stand: Stand) -> None:
    await stand.apply(hold=True)
    await stand.at_redbox(Phase.PENDING, reason="JobHeldUser")
    await stand.change(annotations=WISH, spec={"hold": False})
    await stand.look()
    assert set(stand.link.done) == {"cancel farm/default all"}
    assert stand.status["reason"] == "Cancelling"


ARRAY = ArrayCounts(total=9, running=2, pending=7)


async def test_tasks_of_an_array_are_cancelled_once_each(stand: Stand) -> None:
    await stand.apply(array="0-8")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    await stand.change(annotations={CANCEL_TASKS: of_run("7", 1, "3,5/x")})
    await stand.look()
    assert stand.link.done == ["cancel-task 1 task 3", "cancel-task 1 task 5"]
    (event,) = [event for event in stand.api.of_kind("Event") if event["reason"] == "TasksCancelled"]
    assert event["message"].startswith("7/1/3,5/x: ")
    await stand.change(annotations={CANCEL_TASKS: of_run("7", 1, "6/y")})
    assert stand.link.done[2:] == ["cancel-task 1 task 6"]


async def test_a_task_that_is_not_cancelled_is_named_with_the_reason(stand: Stand) -> None:
    await stand.apply(array="0-8")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    stand.link.refusal = refusal(Conflict, 409)
    await stand.change(annotations={CANCEL_TASKS: of_run("7", 1, "3/x")})
    (event,) = [event for event in stand.api.of_kind("Event") if event["reason"] == CANCEL_TASKS_REFUSED]
    assert event["message"] == "7/1/3/x: task 3: no role requeue"


@pytest.mark.parametrize("value", ["7/2/3", "8/1/3", "7/1", "7/1/", "7/1/x,-1", "3"])
async def test_tasks_of_another_run_and_what_are_none_are_left_alone(stand: Stand, value: str) -> None:
    await stand.apply(array="0-8")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    await stand.change(annotations={CANCEL_TASKS: value})
    assert stand.link.done == []


@pytest.mark.parametrize(
    ("tasks", "cancelled", "left_out"),
    [
        ([*range(MOST_TASKS + 10)], MOST_TASKS, "10 of the 30"),
        ([0, "x", 1], 2, "1 of the 3"),
        ([""], 0, "1 of the 1"),
    ],
)
async def test_tasks_of_a_request_that_are_left_out_are_refused(
    stand: Stand, tasks: list[Any], cancelled: int, left_out: str
) -> None:
    await stand.apply(array="0-99")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    await stand.change(annotations={CANCEL_TASKS: of_run("7", 1, f"{','.join(map(str, tasks))}/x")})
    assert len(stand.link.done) == cancelled
    assert "TasksCancelled" not in stand.event_reasons()
    (event,) = [event for event in stand.api.of_kind("Event") if event["reason"] == CANCEL_TASKS_REFUSED]
    assert f": {left_out} named are left out: a request names 1 to {MOST_TASKS} tasks" in event["message"]


async def test_tasks_are_cancelled_also_where_a_requeue_of_the_run_was_refused(stand: Stand) -> None:
    await stand.apply(array="0-8")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    stand.link.refusal = refusal(Conflict, 409)
    await stand.change(annotations={REQUEUE: of_run("7", 1, "x")})
    stand.link.refusal = None
    both = {REQUEUE: of_run("7", 1, "x"), CANCEL_TASKS: of_run("7", 1, "3/y")}
    await stand.change(annotations=both)
    await stand.look()
    assert stand.link.done == ["requeue 1 run 1", "cancel-task 1 task 3"]


async def test_tasks_of_a_run_that_is_requeued_are_not_cancelled_in_the_next(stand: Stand) -> None:
    """Slurm has the next run before red-box's row shows it."""
    await stand.apply(array="0-8")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    both = {REQUEUE: of_run("7", 1, "x"), CANCEL_TASKS: of_run("7", 1, "3/y")}
    await stand.change(annotations=both)
    await stand.look()
    await stand.at_redbox(Phase.RUNNING, run=2, array=ARRAY)
    assert stand.link.done == ["requeue 1 run 1"]


async def test_a_user_sees_the_outcome_of_each_request_whatever_the_number_of_events(stand: Stand) -> None:
    await stand.apply(array="0-99")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    event = Event(
        path_of(stand.ref), "0aa6-11", "", NORMAL, reason="Noise", message="", action="", component=""
    )
    for number in range(EVENTS_AT_ONCE + 1):
        await stand.writer.publish_event(replace(event, change=str(number)))
    assert stand.event_reasons().count("Noise") < EVENTS_AT_ONCE + 1
    await stand.change(annotations={CANCEL_TASKS: of_run("7", 1, "3/y")})
    assert stand.event_reasons()[-1] == "TasksCancelled"


async def test_the_outcomes_of_very_many_requests_are_not_all_written(stand: Stand) -> None:
    await stand.apply(array="0-99")
    await stand.at_redbox(Phase.RUNNING, run=1, array=ARRAY)
    stand.writer._events._answer_pace.now = lambda: 0.0
    for number in range(2 * EVENTS_AT_ONCE):
        await stand.change(annotations={CANCEL_TASKS: of_run("7", 1, f"3/{number}")})
    assert stand.event_reasons().count("TasksCancelled") == EVENTS_AT_ONCE


async def test_a_job_that_is_no_array_has_no_tasks(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=1)
    await stand.change(annotations={CANCEL_TASKS: of_run("7", 1, "3/x")})
    assert stand.link.done == []
