"""What a tenant, Slurm or a red-box writes controls no terminal that shows a SlurmJob."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redbox_api.models import Phase
from tests.operator.harness import DELETED, Stand

HOSTILE = "\x1b]0;owned\x07 \u202egnol\u2066 \x9b2J \u2028next"


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def texts(stand: Stand) -> str:
    return json.dumps([stand.status, stand.api.events], ensure_ascii=False)


async def test_statuses_and_events_are_printable_and_written_once(stand: Stand) -> None:
    await stand.apply()
    facts: dict[str, Any] = {
        "reason": HOSTILE,
        "message": HOSTILE,
        "partition": HOSTILE,
        "working_directory": HOSTILE,
    }
    await stand.at_redbox(Phase.SUSPENDED, **facts)
    await stand.at_redbox(Phase.FAILED, **facts)
    assert "?]0;owned? ?gnol? ?2J  next" in stand.status["message"]
    assert texts(stand).isprintable()
    written = len(stand.api.applied)
    await stand.look()
    await stand.look()
    assert len(stand.api.applied) == written


async def test_the_words_of_a_deletion_are_printable_and_written_once(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING, job_id=HOSTILE)
    await stand.change(**DELETED)
    assert "?]0;owned?" in stand.status["message"]
    assert texts(stand).isprintable()
    written = len(stand.api.applied)
    await stand.look()
    assert len(stand.api.applied) == written


async def test_the_words_of_a_companion_are_printable(stand: Stand) -> None:
    await stand.apply()
    await stand.pod_ends(json.dumps({"refused": HOSTILE, "type": "t"}))
    assert "?]0;owned?" in stand.status["message"]
    assert texts(stand).isprintable()


async def test_a_reason_longer_than_a_condition_takes_is_cut(stand: Stand) -> None:
    await stand.apply(backoffLimit=1)
    await stand.at_redbox(Phase.LOST, reason="R" * 300, no_sign_of_start=True)
    assert stand.conditions["Submitted"] == ("False", "R" * 128)
    written = len(stand.api.applied)
    await stand.look()
    assert len(stand.api.applied) == written
