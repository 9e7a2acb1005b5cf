"""Which attempt is next, and when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_operator.api.slurmjob_status import SlurmJobStatus
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
