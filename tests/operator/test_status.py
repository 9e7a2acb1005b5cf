"""A SlurmJob's status from what red-box and Kubernetes say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redbox_api.models import Job, OwnerRef, Phase
from redbox_operator.status import refusal_of, status_of
from tests.operator.test_building import slurm_job

OWNER = OwnerRef(cluster="c", namespace="farm", account="default")
POD: dict[str, Any] = {"metadata": {"uid": "pod-uid"}}


def job(phase: Phase, **facts: Any) -> Job:
    return Job(key="0aa6-11", attempt=1, owner=OWNER, user="alice", phase=phase, **facts)


def test_before_anything_is_known_it_is_pending() -> None:
    status = status_of(slurm_job(), None, None, None)
    assert status == {"phase": "Pending", "status": "Pending", "cluster": "hpc1", "observedGeneration": 1}


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        (Phase.SUBMITTING, "Pending"),
        (Phase.PENDING, "Submitted"),
        (Phase.RUNNING, "Running"),
        (Phase.SUSPENDED, "Suspended"),
        (Phase.SUCCEEDED, "Succeeded"),
        (Phase.FAILED, "Failed"),
        (Phase.CANCELLED, "Cancelled"),
        (Phase.LOST, "Failed"),
    ],
)
def test_phases_are_told_in_both_words(phase: Phase, shown: str) -> None:
    status = status_of(slurm_job(), job(phase), POD, None)
    assert (status["phase"], status["status"]) == (shown, shown)


def test_what_slurm_says_is_told_and_what_is_unknown_is_left_out() -> None:
    seen = job(Phase.RUNNING, state="RUNNING", job_id="7", nodes=["n1", "n2"], partition="debug")
    status = status_of(slurm_job(), seen, POD, None)
    assert (status["state"], status["jobID"], status["nodes"]) == ("RUNNING", "7", ["n1", "n2"])
    assert status["companion"] == {"uid": "pod-uid"}
    assert not {"exitCode", "signal", "reason"} & status.keys()


def test_exit_code_zero_is_told() -> None:
    assert status_of(slurm_job(), job(Phase.SUCCEEDED, exit_code=0), POD, None)["exitCode"] == 0


def test_a_refusal_ends_it_with_the_reason() -> None:
    status = status_of(slurm_job(), None, POD, "invalid partition")
    assert (status["phase"], status["message"]) == ("Failed", "invalid partition")


def ended(message: str) -> dict[str, Any]:
    return {**POD, "status": {"containerStatuses": [{"state": {"terminated": {"message": message}}}]}}


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (json.dumps({"final": True, "refused": "no mapping"}), "no mapping"),
        (json.dumps({"final": True, "logs": "complete"}), None),
        ('"refused" is not JSON', None),
        ('["refused"]', None),
        ("", None),
    ],
)
def test_a_companions_last_word_is_read_with_care(message: str, refusal: str | None) -> None:
    assert refusal_of(ended(message)) == refusal


def test_a_companion_that_runs_has_refused_nothing() -> None:
    assert refusal_of(None) is None
    assert refusal_of({**POD, "status": {"containerStatuses": [{"state": {"running": {}}}]}}) is None
