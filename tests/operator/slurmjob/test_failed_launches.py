"""A job that Slurm holds, since a node could not launch it, is shown so and released as a retry."""

from __future__ import annotations

import pytest

from redbox_api.errors import NotAccepted, NotAllowed, Refused
from redbox_api.models import Phase, Problem
from tests.operator.harness import Stand

HELD = "launch failed requeued held"


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


async def held(stand: Stand, run: int, reason: str = HELD) -> None:
    await stand.at_redbox(Phase.PENDING, reason=reason, run=run, message="A node could not launch it.")


@pytest.mark.parametrize("reason", [HELD, "launch_failed_requeued_held", "JobHoldMaxRequeue"])
async def test_without_retries_the_status_names_the_hold_and_the_cure(stand: Stand, reason: str) -> None:
    await stand.apply()
    await held(stand, run=2, reason=reason)
    assert (stand.status["phase"], stand.status["reason"]) == ("Suspended", reason)
    assert stand.conditions["Held"] == ("True", "HeldBySlurm")
    assert "`kubectl slurm release cow`" in stand.status["message"]
    assert stand.link.done == []


async def test_a_retry_releases_it_and_is_counted_once(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await held(stand, run=2)
    stand.start()
    await held(stand, run=2)  # red-box's row is still the one from before the release
    assert stand.link.done == ["release 1", "release 1"]
    assert (stand.status["relaunches"], stand.conditions["Held"]) == (1, ("False", "Releasing"))
    await stand.at_redbox(Phase.PENDING, reason="BeginTime", run=2)
    assert (stand.status["phase"], stand.conditions["Held"]) == ("Submitted", ("False", "Released"))
    await held(stand, run=3)
    assert (stand.status["phase"], stand.status["relaunches"]) == ("Suspended", 1)
    assert "retries of its backoffLimit (1) are used" in stand.status["message"]
    assert stand.link.done == ["release 1", "release 1"]


async def test_a_release_leaves_one_attempt_less(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await held(stand, run=2)
    await stand.at_redbox(Phase.RUNNING, run=2)
    await stand.at_redbox(Phase.FAILED, run=2)
    assert (stand.status["phase"], stand.conditions["Failed"]) == ("Failed", ("True", "Failed"))


async def test_its_user_releases_it_by_an_annotation_for_one_run(stand: Stand) -> None:
    await stand.apply()
    await held(stand, run=2)
    await stand.change(annotations={"redbox.dev/release": "7/2"})
    assert stand.link.done == ["release 1"]
    assert "relaunches" not in stand.status
    await held(stand, run=3)
    assert stand.conditions["Held"] == ("True", "HeldBySlurm")
    assert stand.link.done == ["release 1"]


async def test_a_job_that_its_script_holds_is_released_by_the_same_annotation(stand: Stand) -> None:
    await stand.apply()
    await held(stand, run=1, reason="JobHeldUser")
    assert stand.link.done == []
    await stand.change(annotations={"redbox.dev/release": "7/1"})
    assert stand.link.done == ["release 1"]
    await stand.at_redbox(Phase.RUNNING, run=1)
    assert (stand.status["phase"], stand.conditions["Held"]) == ("Running", ("False", "Released"))


async def test_a_release_is_requested_once_and_its_user_may_hold_the_job_again(stand: Stand) -> None:
    await stand.apply()
    await held(stand, run=1, reason="JobHeldUser")
    await stand.change(annotations={"redbox.dev/release": "7/1/a"})
    await stand.at_redbox(Phase.PENDING, reason="Priority", run=1)
    await held(stand, run=1, reason="JobHeldUser")
    stand.start()
    await held(stand, run=1, reason="JobHeldUser")
    assert stand.link.done == ["release 1"]
    await stand.change(annotations={"redbox.dev/release": "7/1/b"})
    assert stand.link.done == ["release 1", "release 1"]


async def test_a_refused_release_of_what_a_script_holds_is_not_sent_again(stand: Stand) -> None:
    await stand.apply()
    stand.link.fault = NotAccepted(Problem(type="t", title="Not so", status=422, detail="red-box holds it"))
    await held(stand, run=1, reason="JobHeldUser")
    await stand.change(annotations={"redbox.dev/release": "7/1"})
    stand.link.fault = None
    await stand.look()
    assert stand.link.done == []
    assert [event["reason"] for event in stand.api.events].count("ReleaseRefused") == 1


async def test_what_its_author_holds_is_not_released_by_the_annotation(stand: Stand) -> None:
    await stand.apply(hold=True)
    await held(stand, run=1, reason="JobHeldUser")
    await stand.change(annotations={"redbox.dev/release": "7/1"})
    assert stand.link.done == []


@pytest.mark.parametrize(("kind", "status"), [(NotAccepted, 422), (NotAllowed, 403)])
async def test_a_refused_release_is_an_event_and_is_sent_again_for_another_request(
    stand: Stand, kind: type[Refused], status: int
) -> None:
    await stand.apply()
    await held(stand, run=2)
    stand.link.fault = kind(Problem(type="t", title="Slurm refused it", status=status, detail="no such node"))
    await stand.change(annotations={"redbox.dev/release": "7/2"})
    await stand.look()
    assert stand.conditions["Held"] == ("True", "HeldBySlurm")
    assert "being released" not in stand.status["message"]
    await stand.look()
    (event,) = [event for event in stand.api.events if event["reason"] == "ReleaseRefused"]
    assert event["message"] == "7/2: no such node"
    stand.link.fault = None
    await stand.look()
    assert stand.link.done == []
    await stand.change(annotations={"redbox.dev/release": "7/2/again"})
    assert stand.link.done == ["release 1"]


async def test_a_retry_whose_release_is_refused_waits_for_its_user(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    stand.link.fault = NotAccepted(Problem(type="t", title="Slurm refused it", status=422, detail="no"))
    await held(stand, run=2)
    await stand.look()
    assert stand.conditions["Held"] == ("True", "HeldBySlurm")
    stand.link.fault = None
    await stand.change(annotations={"redbox.dev/release": "7/2/now"})
    assert stand.link.done == ["release 1"]


@pytest.mark.parametrize("field", ["hold", "suspend"])
async def test_one_that_its_author_holds_too_is_not_released(stand: Stand, field: str) -> None:
    await stand.apply(backoffLimit=1)
    await stand.change(spec={field: True})
    await held(stand, run=2)
    assert "release 1" not in stand.link.done
