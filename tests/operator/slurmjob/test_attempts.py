"""Which attempt is next, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_operator.api.slurmjob_status import ConditionType, SlurmJobStatus
from redbox_operator.slurmjob.attempts import Attempt, following, may_retry, next_begins_in, pause_after
from redbox_operator.slurmjob.status import status_of
from tests.operator.factories import NOON, job_row, slurm_job, status_inputs


def retrying(**changed: Any) -> SlurmJobStatus:
    return status_of(status_inputs(job_row(Phase.FAILED), job=slurm_job(backoffLimit=5), **changed))


def suspended() -> SlurmJobStatus:
    spec = slurm_job(suspend=True)
    announced = status_of(status_inputs(job_row(Phase.RUNNING), job=spec))
    return status_of(status_inputs(job_row(Phase.CANCELLED), job=spec, before=announced))


@pytest.mark.parametrize(
    ("attempt", "limit", "may"),
    [
        (Attempt(1, 0), 0, False),
        (Attempt(1, 0), 1, True),
        (Attempt(2, 0), 1, False),
        (Attempt(2, 1), 1, True),  # the first was suspended, not failed
        (Attempt(3, 1), 1, False),
    ],
)
def test_suspended_attempts_do_not_count_against_the_limit(attempt: Attempt, limit: int, may: bool) -> None:  # noqa: FBT001
    assert may_retry(slurm_job(backoffLimit=limit).spec, attempt, job_row(Phase.FAILED)) is may


@pytest.mark.parametrize(
    ("phase", "spec", "may"),
    [
        (Phase.LOST, {}, False),
        (Phase.LOST, {"retryLost": True}, True),
        (Phase.LOST, {"retryLost": True, "backoffLimit": 0}, False),
        (Phase.CANCELLED, {"retryLost": True}, False),
        (Phase.SUCCEEDED, {"retryLost": True}, False),
    ],
)
def test_a_lost_job_is_retried_only_where_the_slurmjob_says_so(
    phase: Phase,
    spec: dict[str, Any],
    may: bool,  # noqa: FBT001
) -> None:
    assert may_retry(slurm_job(**{"backoffLimit": 1, **spec}).spec, Attempt(1, 0), job_row(phase)) is may


def test_pauses_grow_up_to_six_minutes() -> None:
    assert [pause_after(Attempt(n, 0)) for n in (1, 2, 3, 9)] == [10.0, 20.0, 40.0, 360.0]


def test_a_retry_begins_after_its_pause_counted_from_the_failure() -> None:
    spec = slurm_job(backoffLimit=5).spec
    assert next_begins_in(spec, retrying(), NOON) == 10.0
    assert next_begins_in(spec, retrying(), NOON + timedelta(seconds=4)) == 6.0
    assert next_begins_in(spec, retrying(), NOON + timedelta(hours=1)) == 0.0
    assert next_begins_in(spec, retrying(), NOON - timedelta(days=1)) == 0.0  # the clock was set back


def test_a_suspended_job_starts_anew_when_it_is_resumed_and_not_before() -> None:
    assert next_begins_in(slurm_job(suspend=True).spec, suspended(), NOON) is None
    assert next_begins_in(slurm_job().spec, suspended(), NOON) == 0.0


def test_the_next_attempt_after_a_suspension_is_no_failure() -> None:
    assert following(suspended()) == Attempt(2, 1)
    assert following(retrying()) == Attempt(2, 0)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED, Phase.CANCELLED])
def test_nothing_else_is_followed_by_another_attempt(phase: Phase) -> None:
    spec = slurm_job(backoffLimit=5).spec
    assert next_begins_in(spec, status_of(status_inputs(job_row(phase))), NOON + timedelta(days=1)) is None


FORGOTTEN = {"reason": "ForgottenBySlurm", "message": "Lost.", "state": "PENDING"}


@pytest.mark.parametrize(
    ("no_sign_of_start", "spec", "may"),
    [
        (True, {}, True),
        (True, {"backoffLimit": 0}, False),
        (False, {}, False),
        (False, {"retryLost": True}, True),
    ],
)
def test_a_forgotten_job_counts_as_failed_unless_something_shows_a_start(
    no_sign_of_start: bool,  # noqa: FBT001
    spec: dict[str, Any],
    may: bool,  # noqa: FBT001
) -> None:
    row = job_row(Phase.LOST, **FORGOTTEN, no_sign_of_start=no_sign_of_start)
    assert may_retry(slurm_job(**{"backoffLimit": 1, **spec}).spec, Attempt(1, 0), row) is may


def test_the_attempt_after_a_forgotten_one_begins_at_once_also_after_a_restart_of_the_operator() -> None:
    spec = slurm_job(backoffLimit=3)
    row = job_row(Phase.LOST, **FORGOTTEN, no_sign_of_start=True)
    status = status_of(status_inputs(row, job=spec))
    assert (status.phase, status.reason) == ("Pending", "Retrying")
    assert status.message == "Lost. Retry 1 of 3 is submitted at once."
    submitted = status.condition(ConditionType.SUBMITTED)
    assert submitted is not None
    assert submitted.reason == "ForgottenBySlurm"
    assert next_begins_in(spec.spec, status, NOON) == 0.0
    without_row = status_of(status_inputs(job=spec, before=status))
    assert without_row == status
    assert following(without_row) == Attempt(2, 0)


NOT_LAUNCHED = {"reason": "LaunchFailed", "message": "Not launched.", "state": "CANCELLED"}


def test_the_attempt_after_one_that_its_node_could_not_launch_begins_at_once() -> None:
    spec = slurm_job(backoffLimit=3)
    status = status_of(status_inputs(job_row(Phase.FAILED, **NOT_LAUNCHED, no_sign_of_start=True), job=spec))
    assert (status.phase, status.reason) == ("Pending", "Retrying")
    assert status.message == "Not launched. Retry 1 of 3 is submitted at once."
    assert next_begins_in(spec.spec, status, NOON) == 0.0


def test_a_second_launch_that_failed_is_followed_by_an_attempt_only_with_retry_lost() -> None:
    """Its first run may have done all of its work."""
    row = job_row(Phase.LOST, **NOT_LAUNCHED)
    status = status_of(status_inputs(row, job=slurm_job(backoffLimit=3)))
    assert (status.phase, status.reason) == ("Failed", "LaunchFailed")
    assert "retryLost with a backoffLimit does so by itself" in (status.message or "")
    finished = status.condition(ConditionType.FINISHED)
    assert finished is not None
    assert finished.reason == "Lost"
    status = status_of(status_inputs(row, job=slurm_job(backoffLimit=3, retryLost=True)))
    assert (status.phase, status.reason) == ("Pending", "Retrying")
    assert status.message == "Not launched. Retry 1 of 3 is submitted after 10 s."


def test_without_a_retry_a_job_that_its_node_could_not_launch_has_failed_and_says_what_to_type() -> None:
    status = status_of(status_inputs(job_row(Phase.FAILED, **NOT_LAUNCHED, no_sign_of_start=True)))
    assert (status.phase, status.reason) == ("Failed", "LaunchFailed")
    assert "kubectl delete slurmjob" in (status.message or "")


@pytest.mark.parametrize(
    ("no_sign_of_start", "said"),
    [(True, "kubectl delete slurmjob j` and apply it again"), (False, "retryLost with a backoffLimit")],
)
def test_without_a_retry_the_user_is_told_what_to_type(no_sign_of_start: bool, said: str) -> None:  # noqa: FBT001
    row = job_row(Phase.LOST, **FORGOTTEN, no_sign_of_start=no_sign_of_start)
    status = status_of(status_inputs(row, job=slurm_job()))
    assert (status.phase, status.reason) == ("Failed", "ForgottenBySlurm")
    assert said.replace("slurmjob j`", f"slurmjob {slurm_job().name}`") in (status.message or "")
    finished = status.condition(ConditionType.FINISHED)
    assert finished is not None
    assert finished.reason == "Lost"


def test_a_later_attempt_that_may_have_started_names_its_own_log() -> None:
    row = job_row(Phase.LOST, **FORGOTTEN, no_sign_of_start=False)
    status = status_of(status_inputs(row, job=slurm_job(backoffLimit=1), attempt=Attempt(2, 0)))
    assert f"kubectl logs {slurm_job().name}-job-2`" in (status.message or "")
