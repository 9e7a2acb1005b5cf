"""What the reconciler does from one attempt to the next: retried, suspended, resumed, forgotten."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redbox_api.errors import Busy
from redbox_api.models import Phase, Problem
from redbox_kube.api.objects import ApiRefused
from tests.operator.harness import Stand


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


async def test_a_failure_is_followed_by_a_new_attempt_with_its_own_companion(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.FAILED)
    assert (stand.status["phase"], stand.status["reason"]) == ("Pending", "Retrying")
    assert await stand.look() == 10.0
    stand.now += timedelta(seconds=10)
    await stand.look()
    assert stand.pod_names == ["cow-job", "cow-job-2"]
    assert (stand.status["attempts"], stand.status["companion"]["attempt"]) == (2, 2)
    await stand.at_redbox(Phase.FAILED, attempt=2)
    assert (stand.status["phase"], stand.conditions["Failed"]) == ("Failed", ("True", "Failed"))


async def test_a_retry_is_due_though_nothing_else_happens(stand: Stand) -> None:
    """The companion may have ended before the job's end was known here."""
    await stand.apply(backoffLimit=1)
    assert await stand.at_redbox(Phase.FAILED) == 10.0


async def test_a_restart_between_two_attempts_goes_on_with_the_second(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.FAILED)
    stand.start()
    stand.link.rows.clear()
    stand.now += timedelta(seconds=10)
    await stand.look()
    assert stand.status["attempts"] == 2


async def test_suspending_holds_a_job_that_waits_and_resuming_releases_it(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, reason="Resources")
    await stand.change(spec={"suspend": True})
    assert stand.link.done == ["hold 1"]
    await stand.at_redbox(Phase.PENDING, reason="JobHeldUser")
    assert stand.status["phase"] == "Suspended"
    assert stand.link.done == ["hold 1"]
    await stand.change(spec={"suspend": False})
    assert stand.link.done == ["hold 1", "release 1"]
    await stand.at_redbox(Phase.PENDING, reason="Resources")
    assert (stand.status["phase"], stand.conditions["Held"]) == ("Submitted", ("False", "Released"))


async def test_one_that_is_resumed_before_slurm_has_said_that_it_holds_it_is_released(stand: Stand) -> None:
    await stand.apply(suspend=True)
    await stand.at_redbox(Phase.PENDING)
    await stand.change(spec={"suspend": False})
    assert "release 1" not in stand.link.done
    await stand.at_redbox(Phase.PENDING, reason="JobHeldUser")
    assert stand.link.done[-1] == "release 1"


async def test_one_that_is_released_before_red_box_has_shown_the_hold_is_released(stand: Stand) -> None:
    """Its row is still the one from before the hold."""
    await stand.apply()
    await stand.at_redbox(Phase.PENDING, reason="Resources")
    await stand.change(spec={"hold": True})
    stand.link.fault = Busy(Problem(type="about:blank", title="", status=503, detail="Slurm is away"))
    await stand.change(spec={"hold": False})
    stand.link.fault = None
    await stand.look()
    await stand.look()
    assert stand.link.done == ["hold 1", "release 1"]
    assert stand.conditions["Held"] == ("False", "Released")


async def test_one_that_is_released_while_it_is_being_submitted_is_released(stand: Stand) -> None:
    await stand.apply(hold=True)
    await stand.at_redbox(Phase.SUBMITTING, job_id=None, state=None)
    await stand.change(spec={"hold": False})
    await stand.at_redbox(Phase.PENDING, reason="JobHeldUser")
    assert stand.link.done == ["release 1"]


async def test_a_job_that_its_user_holds_in_slurm_is_not_released(stand: Stand) -> None:
    await stand.apply(hold=True)
    await stand.change(spec={"hold": False})
    await stand.at_redbox(Phase.PENDING, reason="Resources")
    await stand.at_redbox(Phase.PENDING, reason="JobHeldUser")
    assert stand.link.done == []


async def test_suspending_cancels_a_job_that_runs_and_resuming_starts_it_anew(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(spec={"suspend": True})
    assert stand.link.done == ["cancel farm/default 1"]
    await stand.at_redbox(Phase.CANCELLED)
    assert (stand.status["phase"], stand.status["reason"]) == ("Suspended", "Suspended")
    stand.start()
    await stand.change(spec={"suspend": False})
    assert (stand.status["phase"], stand.status["attempts"], stand.status["resumed"]) == ("Pending", 2, 1)


async def test_one_that_is_resumed_while_it_is_being_cancelled_starts_anew(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    await stand.change(spec={"suspend": True})
    await stand.change(spec={"suspend": False})
    await stand.at_redbox(Phase.RUNNING, state="COMPLETING")
    assert (stand.status["phase"], stand.status["reason"]) == ("Suspended", "Suspending")
    assert await stand.at_redbox(Phase.CANCELLED) == 1.0  # nothing else need happen
    await stand.look()
    assert (stand.status["phase"], stand.status["attempts"], stand.status["resumed"]) == ("Pending", 2, 1)
    assert stand.pod_names == ["cow-job", "cow-job-2"]


async def test_one_that_slurm_holds_after_a_requeue_is_not_born_again_when_it_is_cancelled(
    stand: Stand,
) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUSPENDED, state="REQUEUE_HOLD", reason="JobHeldUser")
    await stand.at_redbox(Phase.CANCELLED)
    await stand.look()
    assert (stand.status["phase"], stand.conditions["Finished"]) == ("Cancelled", ("True", "Cancelled"))
    assert stand.pod_names == ["cow-job"]


# ---------------------------------------------------------------------------------------- what it waits for


async def test_an_attempt_after_the_first_does_not_wait_again(stand: Stand) -> None:
    """What the first one waited for has come, and may have gone by its ttl, or be another by now."""
    stand.has_other("first", "Succeeded")
    await stand.apply(backoffLimit=1, dependsOn=[{"name": "first"}])
    await stand.at_redbox(Phase.RUNNING, nodes=["n1"])
    stand.reconciler.job_deleted(stand.ref._replace(name="first"), "uid-of-first")
    await stand.at_redbox(Phase.FAILED, nodes=["n1"])
    stand.now += timedelta(seconds=10)
    stand.api.fail(ApiRefused(403, "exceeded quota"), verb="create", kind="Pod")
    await stand.look()
    assert (stand.status["attempts"], stand.status["reason"]) == (2, "QuotaExceeded")
    stand.api.recover()
    stand.has_other("first", "Running")
    await stand.look()
    assert stand.pod_names == ["cow-job", "cow-job-2"]


async def test_a_resumed_job_does_not_wait_again(stand: Stand) -> None:
    stand.has_other("first", "Succeeded")
    await stand.apply(dependsOn=[{"name": "first"}])
    await stand.at_redbox(Phase.RUNNING, nodes=["n1"])
    await stand.change(spec={"suspend": True})
    await stand.at_redbox(Phase.CANCELLED, nodes=["n1"])
    stand.reconciler.job_deleted(stand.ref._replace(name="first"), "uid-of-first")
    await stand.change(spec={"suspend": False})
    assert (stand.status["phase"], stand.status["attempts"]) == ("Pending", 2)
    assert stand.pod_names == ["cow-job", "cow-job-2"]


async def test_an_attempt_after_one_that_never_had_a_node_waits_as_that_did(stand: Stand) -> None:
    """Slurm may fail a job that still waits: at its deadline, say."""
    stand.has_other("first", "Running")
    await stand.apply(backoffLimit=1, dependsOn=[{"name": "first"}])
    await stand.at_redbox(Phase.FAILED, state="DEADLINE")
    stand.reconciler.job_deleted(stand.ref._replace(name="first"), "uid-of-first")
    stand.now += timedelta(seconds=10)
    await stand.look()
    assert (stand.status["attempts"], stand.status["reason"]) == (2, "DependencyMissing")


# ------------------------------------------------------------------------------------------------ rows


async def test_the_row_of_an_ended_job_is_not_kept_in_whatever_order_it_ends(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED)
    assert len(stand.link.rows) == 1
    await stand.pod_ends('{"final": true}')
    assert stand.status["companion"]["done"]
    assert stand.link.rows == {}


async def test_rows_of_earlier_attempts_are_not_kept(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.FAILED)
    stand.now += timedelta(seconds=10)
    await stand.look()
    await stand.at_redbox(Phase.RUNNING, attempt=2)
    assert [key.attempt for key in stand.link.rows] == [2]


async def test_an_older_attempt_that_lives_again_beside_a_newer_one_is_cancelled(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.LOST, reason="ForgottenBySlurm", no_sign_of_start=True)
    await stand.look()
    await stand.at_redbox(Phase.RUNNING, attempt=2)
    assert stand.link.done == []
    await stand.at_redbox(Phase.RUNNING, attempt=1)
    assert stand.link.done == ["cancel farm/default 1"]
    assert stand.event_reasons()[-1] == "OlderAttemptCancelled"
    assert "Attempt 1 (Slurm job 7) lives in Slurm again" in stand.api.events[-1]["message"]
    await stand.at_redbox(Phase.RUNNING, attempt=1, cancel_requested=True)
    assert stand.link.done == ["cancel farm/default 1"]
    await stand.at_redbox(Phase.CANCELLED, attempt=1)
    assert [key.attempt for key in stand.link.rows] == [2]
    assert (stand.status["phase"], stand.status["attempts"]) == ("Running", 2)


async def test_an_older_attempt_that_lives_again_after_the_newer_ones_end_is_cancelled(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.LOST, reason="ForgottenBySlurm", no_sign_of_start=True)
    await stand.look()
    await stand.at_redbox(Phase.SUCCEEDED, attempt=2, exit_code=0)
    await stand.at_redbox(Phase.PENDING, attempt=1)
    assert stand.link.done == ["cancel farm/default 1"]
    assert stand.status["phase"] == "Succeeded"
