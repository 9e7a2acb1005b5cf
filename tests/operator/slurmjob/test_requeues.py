"""A requeue that an annotation asks for: sent for the run that it names, once, with an event."""

from __future__ import annotations

import pytest

from redbox_api.errors import Busy, Conflict, NotAllowed, Refused
from redbox_api.models import Phase, Problem
from redbox_shared import requeues
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
    await stand.change(annotations={requeues.ANNOTATION: requeues.requeue_of("7", 2)})
    await stand.look()
    assert stand.link.done == ["requeue 1 run 2"]
    assert stand.event_reasons()[-1] == "Requeued"


@pytest.mark.parametrize("value", ["7/1", "7/3", "8/2", "", "now", "7/22"])
async def test_an_annotation_about_another_run_is_left_alone(stand: Stand, value: str) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=2)
    await stand.change(annotations={requeues.ANNOTATION: value})
    assert stand.link.done == []


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.SUCCEEDED])
async def test_a_job_that_does_not_run_is_not_requeued(stand: Stand, phase: Phase) -> None:
    await stand.apply()
    await stand.at_redbox(phase, run=1)
    await stand.change(annotations={requeues.ANNOTATION: requeues.requeue_of("7", 1)})
    assert stand.link.done == []


@pytest.mark.parametrize("refused", [refusal(NotAllowed, 403), refusal(Conflict, 409)])
async def test_a_refusal_is_an_event_with_its_words_and_is_not_repeated(
    stand: Stand, refused: Refused
) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=1)
    stand.link.refusal = refused
    await stand.change(annotations={requeues.ANNOTATION: requeues.requeue_of("7", 1)})
    await stand.look()
    assert stand.link.done == ["requeue 1 run 1"]
    await stand.change(annotations={requeues.ANNOTATION: requeues.requeue_of("7", 1, "again")})
    assert stand.link.done == ["requeue 1 run 1"] * 2
    (event, _) = [event for event in stand.api.of_kind("Event") if event["reason"] == requeues.REFUSED]
    assert event["message"] == "7/1: The caller may not do this: no role requeue"


async def test_what_may_succeed_later_is_sent_again(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, run=1)
    stand.link.refusal = refusal(Busy, 503)
    await stand.change(annotations={requeues.ANNOTATION: requeues.requeue_of("7", 1)})
    stand.link.refusal = None
    await stand.look()
    assert stand.link.done == ["requeue 1 run 1"] * 2
    assert stand.event_reasons()[-1] == "Requeued"
