"""A status that a user wrote by hand: who may patch slurmjobs/status harms the own SlurmJob at most."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.feed import RowKey
from redbox_api.models import Job, Phase
from redbox_operator.api.slurmjob import SlurmJobRef
from redbox_operator.companion_pods.plan import companion_of
from redbox_operator.slurmjob.attempt_state import AttemptState
from redbox_operator.slurmjob.attempts import Attempt
from redbox_operator.slurmjob.superseded import older_keys
from tests.operator.factories import slurm_job
from tests.operator.harness import DELETED, Stand

FINISHED = {
    "type": "Finished",
    "status": "True",
    "reason": "Failed",
    "lastTransitionTime": "2026-11-21T12:00:00Z",
}


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def forge(stand: Stand, **status: Any) -> None:
    job = stand.api.objects[stand.where]
    stand.api.put(stand.where, {**job, "status": {**job["status"], **status}})


def test_the_work_for_older_attempts_is_bounded_whatever_their_number() -> None:
    """Of two thousand million the operator had to look at each, and did nothing else for an hour."""
    state = AttemptState(slurm_job(), None, Attempt(1_000_000, 0), None)
    assert [key.attempt for key in older_keys(state)] == list(range(999_000, 1_000_000))


class CountedRows(dict[RowKey, Job]):
    """Counts the look-ups."""

    looked_up = 0

    def get(self, key: RowKey, default: Any = None) -> Any:
        self.looked_up += 1
        return super().get(key, default)


async def test_a_cancel_looks_at_a_bounded_number_of_attempts(stand: Stand) -> None:
    """Of a million the operator looked at each, and did nothing else for seconds."""
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.rows = rows = CountedRows(stand.link.rows)
    stand.link.cancel_answer = [stand.row_of(Phase.CANCELLED, 1_000_000)]
    forge(stand, attempts=1_000_000)
    await stand.change(**DELETED)
    assert stand.link.done == ["cancel farm/default all"]
    assert 0 < rows.looked_up < 10_000


async def test_a_status_without_a_number_of_attempts_is_of_the_first(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    stand.link.rows.clear()
    stand.link.cancel_answer = [stand.row_of(Phase.CANCELLED)]
    forge(stand, attempts=None)
    await stand.change(**DELETED)
    assert stand.finalizers == []


async def test_an_unknown_reason_of_a_hold_is_none(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.SUCCEEDED, state="COMPLETED")
    stand.link.rows.clear()
    held = {**FINISHED, "type": "Held", "reason": "Nonsense"}
    forge(stand, conditions=[{**FINISHED, "reason": "Succeeded"}, held])
    await stand.look()
    assert "Held" not in stand.conditions


async def test_a_number_of_attempts_that_cannot_be_is_replaced_by_what_red_box_has(stand: Stand) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    before = stand.status
    forge(stand, attempts=2_000_000_000, conditions=[FINISHED], phase="Failed")
    await stand.look()
    await stand.look()
    assert stand.status["phase"] == "Running"
    assert stand.status.get("attempts", 1) == before.get("attempts", 1)
    assert stand.pod_names == ["cow-job"]


@pytest.mark.parametrize(
    "forged",
    [
        {"jobID": "999"},
        {"companion": None, "jobID": None},
        {"conditions": [FINISHED], "phase": "Succeeded"},
        {"attempts": 7, "resumed": 7},
        {"user": "bob", "nodes": ["n9"]},
    ],
)
async def test_a_deletion_cancels_all_jobs_of_the_slurmjob_and_no_other(
    stand: Stand, forged: dict[str, Any]
) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    forge(stand, **forged)
    await stand.change(**DELETED)
    assert stand.link.done == ["cancel farm/default all"]
    assert stand.finalizers, "the job has not ended yet"


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        ({"jobID": "999", "user": "bob"}, "Unfinished"),
        ({"conditions": [FINISHED], "phase": "Succeeded"}, "LivesAgain"),
    ],
)
async def test_what_red_box_says_replaces_what_was_forged(
    stand: Stand, forged: dict[str, Any], reason: str
) -> None:
    await stand.apply()
    await stand.at_redbox(Phase.RUNNING)
    before = stand.status
    forge(stand, **forged)
    await stand.look()
    assert {name: stand.status[name] for name in ("jobID", "user", "phase")} == {
        name: before[name] for name in ("jobID", "user", "phase")
    }
    assert stand.conditions["Finished"] == ("False", reason)


async def test_a_pod_with_the_label_of_a_slurmjob_of_another_namespace_wakes_nobody(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may make pods anywhere could have it looked at without an end."""
    await stand.apply()
    woken: list[SlurmJobRef] = []
    monkeypatch.setattr(stand.reconciler.queue, "add", woken.append)
    (pod,) = stand.api.of_kind("Pod")
    for namespace, wakes in (("elsewhere", []), ("farm", [stand.ref])):
        metadata = {**pod["metadata"], "namespace": namespace, "resourceVersion": "999999"}
        changed = companion_of({**pod, "metadata": metadata, "status": {"phase": "Failed"}})
        stand.reconciler.companion_updated(changed)
        assert woken == wakes
        woken.clear()
        stand.reconciler.companion_deleted(changed)
        assert woken == wakes
        woken.clear()
