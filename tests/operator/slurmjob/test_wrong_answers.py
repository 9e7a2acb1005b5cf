"""A red-box that is broken or lies: no job is let go of by an answer that others contradict."""

from __future__ import annotations

import pytest

from redbox_api.errors import NoSuchJob
from redbox_api.models import Phase
from redbox_operator.api.constants import FINALIZER
from redbox_shared.job_end import CONTRADICTION
from redbox_shared.requested_actions import CANCEL, REQUESTED
from tests.operator.harness import DELETED, NO_SUCH_JOB, Stand


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


async def test_a_deleted_slurmjob_stays_while_the_watch_shows_alive_what_the_cancel_calls_ended(
    stand: Stand,
) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.cancel_answer = [stand.row_of(Phase.CANCELLED)]
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "waits for Slurm to end its job: 7" in stand.status["message"]
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.finalizers == []


async def test_a_deleted_slurmjob_stays_while_the_watch_shows_alive_what_the_cancel_does_not_find(
    stand: Stand,
) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, job_id=None)
    stand.link.refusal = NoSuchJob(NO_SUCH_JOB)
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "answers that there is no such job" in stand.status["message"]


async def test_a_deleted_slurmjob_stays_while_the_cancel_does_not_name_its_job(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.rows.clear()
    stand.link.cancel_answer = [stand.row_of(Phase.CANCELLED, 2)]
    await stand.change(**DELETED)
    assert stand.finalizers == [FINALIZER]
    assert "does not name Slurm's job 7" in stand.status["message"]
    assert "`redbox recover`" in stand.status["message"]


async def test_a_contradiction_is_shown_and_ends_nothing(stand: Stand) -> None:
    await stand.apply(backoffLimit=3)
    await stand.at_redbox(Phase.RUNNING)
    await stand.at_redbox(Phase.RUNNING, reason=CONTRADICTION, message="its phase is Failed")
    assert stand.status["phase"] == "Running"
    assert stand.conditions["Synced"] == ("False", CONTRADICTION)
    assert CONTRADICTION in stand.event_reasons()
    await stand.at_redbox(Phase.RUNNING)
    assert stand.conditions["Synced"] == ("True", "Synced")


async def test_a_job_that_lives_after_its_end_is_followed_and_shown(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED, state="COMPLETED")
    assert stand.conditions["Finished"][0] == "True"
    for _ in range(2):
        await stand.at_redbox(Phase.RUNNING)
        assert stand.status["phase"] == "Running"
        assert stand.conditions["Finished"] == ("False", "LivesAgain")
    assert stand.event_reasons().count("LivesAgain") == 1
    await stand.at_redbox(Phase.FAILED)
    assert stand.conditions["Finished"] == ("True", "Failed")


async def test_a_job_that_lives_after_its_cancel_is_cancelled_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(annotations={CANCEL: REQUESTED})
    await stand.at_redbox(Phase.CANCELLED)
    assert stand.conditions["Finished"] == ("True", "Cancelled")
    stand.link.done.clear()
    await stand.at_redbox(Phase.RUNNING)
    assert stand.link.done == ["cancel farm/default all"]


async def test_a_companion_that_is_refused_does_not_end_a_slurmjob_whose_job_slurm_has(stand: Stand) -> None:
    """Its account lost its mapping: the job runs on."""
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.rows.clear()
    await stand.pod_ends('{"refused": "Not allowed: no rule", "type": "t"}')
    assert stand.status["phase"] == "Running"
    assert stand.conditions["Finished"][0] == "False"
    assert stand.conditions["Synced"] == ("False", "NotKnown")
