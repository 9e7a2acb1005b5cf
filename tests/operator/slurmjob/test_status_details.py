"""Details of a status wait for the next change; news do not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_kube.runtime.waiting_details import LONGEST_WAIT_S
from redbox_operator.api.slurmjob_status import is_detail
from redbox_operator.slurmjob.status import status_of
from tests.operator.factories import job_row, status_inputs
from tests.operator.harness import Stand

SUBMITTED = status_of(status_inputs(job_row(Phase.PENDING)))


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        {"state": "PENDING"},
        {"partition": "gpu"},
        {"stdout": "/home/alice/slurm-7.out"},
        {"reason": "Priority", "message": "It waits."},
    ],
)
def test_what_slurm_adds_to_a_job_in_its_queue_is_a_detail(change: dict[str, Any]) -> None:
    before = SUBMITTED.model_copy(update={"state": None})
    assert is_detail(before, before.model_copy(update=change))


def test_a_status_has_the_files_of_the_jobs_output_and_keeps_them() -> None:
    row = job_row(Phase.RUNNING, logs={"stdout": "/home/alice/7.out", "stderr": "/home/alice/7.err"})
    status = status_of(status_inputs(row))
    assert (status.stdout, status.stderr) == ("/home/alice/7.out", "/home/alice/7.err")
    assert status_of(status_inputs(None, before=status)).stdout == status.stdout


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Running"},
        {"job_id": "8"},
        {"exit_code": 1},
        {"companion": None},
        {"conditions": []},
        {"observed_generation": 7},
    ],
)
def test_what_a_user_or_another_part_waits_for_is_none(change: dict[str, Any]) -> None:
    assert not is_detail(SUBMITTED, SUBMITTED.model_copy(update=change))


def test_slurms_reason_in_a_condition_is_a_detail_too() -> None:
    waits = status_of(
        status_inputs(job_row(Phase.PENDING, reason="Priority", message="It waits."), before=SUBMITTED)
    )
    assert [one.message for one in waits.conditions] != [one.message for one in SUBMITTED.conditions]
    assert is_detail(SUBMITTED, waits)


def test_a_status_that_has_not_changed_has_no_details() -> None:
    assert not is_detail(SUBMITTED, SUBMITTED.model_copy())


def test_a_reason_in_another_phase_is_none() -> None:
    running = status_of(status_inputs(job_row(Phase.RUNNING)))
    assert not is_detail(running, running.model_copy(update={"message": "Slurm does not answer."}))


async def test_details_are_written_with_the_next_change(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, state=None)
    writes = stand.api.writes
    due_in = await stand.at_redbox(Phase.PENDING, partition="debug")
    assert due_in == LONGEST_WAIT_S
    assert stand.api.writes == writes
    await stand.at_redbox(Phase.RUNNING, partition="debug")
    assert (stand.status["phase"], stand.status["partition"]) == ("Running", "debug")
    assert stand.api.writes == writes + 1


async def test_details_without_a_next_change_are_written_when_they_are_due(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, state=None)
    await stand.at_redbox(Phase.PENDING, partition="debug")
    stand.now += timedelta(seconds=LONGEST_WAIT_S / 2)
    assert await stand.at_redbox(Phase.PENDING, partition="debug", reason="Priority") == LONGEST_WAIT_S / 2
    stand.now += timedelta(seconds=LONGEST_WAIT_S / 2)
    assert await stand.look() is None
    assert (stand.status["partition"], stand.status["reason"]) == ("debug", "Priority")


async def test_details_that_wait_are_not_lost_by_a_restart(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, state=None)
    await stand.at_redbox(Phase.PENDING, partition="debug")
    stand.start()
    await stand.look()
    stand.now += timedelta(seconds=LONGEST_WAIT_S)
    await stand.look()
    assert stand.status["partition"] == "debug"


async def test_a_clock_that_is_set_back_delays_no_details(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, state=None)
    await stand.at_redbox(Phase.PENDING, partition="debug")
    stand.now -= timedelta(hours=1)
    await stand.look()
    assert stand.status["partition"] == "debug"
