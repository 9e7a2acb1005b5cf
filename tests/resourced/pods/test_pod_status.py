"""What a pod on a virtual node says of its job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox_api.models import Job, OwnerRef, Phase
from redbox_clusters.virtual_pods import SUBMITTED
from redbox_resourced.pods import pod_status
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_view import BoundPod, digest_of, read_pod

SUBMITTED_AT = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)
STARTED_AT = SUBMITTED_AT + timedelta(seconds=30)
ENDED_AT = STARTED_AT + timedelta(minutes=1)


def pod(phase: str = "Pending", status: dict[str, Any] | None = None) -> BoundPod:
    return read_pod(
        {
            "metadata": {
                "namespace": "alice",
                "name": "cow-job",
                "uid": "u",
                "creationTimestamp": "2026-11-21T12:59:58Z",
            },
            "spec": {"nodeName": "hpc1.debug", "containers": [{"name": "companion", "image": "i"}]},
            "status": {"phase": phase, **(status or {})},
        }
    )


def job(phase: Phase, **fields: Any) -> Job:
    owner = OwnerRef(cluster="prod", namespace="alice", account="default")
    given: dict[str, Any] = {"job_id": "7", "submitted_at": SUBMITTED_AT, **fields}
    return Job(key="k", attempt=1, owner=owner, user="alice", phase=phase, **given)


def container(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = status["containerStatuses"][0]
    return found


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(item for item in status["conditions"] if item["type"] == kind)


def test_a_waiting_job_is_pending_and_says_why() -> None:
    status = pod_status.of_job(pod(), job(Phase.PENDING, state="PENDING", reason="Priority"))
    assert status["phase"] == "Pending"
    waiting = container(status)["state"]["waiting"]
    assert waiting == {"reason": "Queued", "message": "Slurm says: PENDING Priority"}
    assert condition(status, SUBMITTED)["message"] == "Slurm job 7 of alice"


def test_a_running_job_is_ready_since_it_started() -> None:
    status = pod_status.of_job(pod(), job(Phase.RUNNING, started_at=STARTED_AT))
    assert (status["phase"], container(status)["ready"]) == ("Running", True)
    ready = condition(status, "Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", "2026-11-21T13:00:30Z")


def test_a_requeued_job_stays_running_and_counts_its_runs() -> None:
    again = job(Phase.PENDING, run=2, message="Slurm requeued it; it waits for its next run.")
    status = pod_status.of_job(pod("Running"), again)
    assert (status["phase"], container(status)["restartCount"]) == ("Running", 1)
    assert container(status)["state"]["waiting"]["reason"] == "Requeued"
    assert condition(status, "Ready")["status"] == "False"


@pytest.mark.parametrize(
    ("ended", "phase", "code", "reason"),
    [
        (job(Phase.SUCCEEDED, exit_code=0, state="COMPLETED"), "Succeeded", 0, "Completed"),
        (job(Phase.FAILED, exit_code=3, state="FAILED"), "Failed", 3, "Error"),
        (job(Phase.FAILED, exit_code=0, signal=9, state="FAILED"), "Failed", 137, "Error"),
        (job(Phase.FAILED, exit_code=0, state="TIMEOUT"), "Failed", 124, "TIMEOUT"),
        (job(Phase.FAILED, exit_code=0, state="OUT_OF_MEMORY"), "Failed", 137, "OOMKilled"),
        (job(Phase.CANCELLED, state="CANCELLED"), "Failed", 143, "Cancelled"),
        (job(Phase.LOST), "Failed", 70, "Lost"),
    ],
)
def test_an_end_is_told_by_code_and_word(ended: Job, phase: str, code: int, reason: str) -> None:
    ended = ended.model_copy(update={"started_at": STARTED_AT, "ended_at": ENDED_AT})
    status = pod_status.of_job(pod("Running"), ended)
    terminated = container(status)["state"]["terminated"]
    assert (status["phase"], terminated["exitCode"], terminated["reason"]) == (phase, code, reason)
    assert (terminated["startedAt"], terminated["finishedAt"]) == (
        "2026-11-21T13:00:30Z",
        "2026-11-21T13:01:30Z",
    )
    assert json.loads(terminated["message"])["final"] is True


def test_a_refusal_fails_the_pod_with_red_boxs_sentence() -> None:
    status = pod_status.refused(pod(), JobRefusal("Slurm has no partition nowhere."))
    assert (status["phase"], status["message"]) == ("Failed", "Slurm has no partition nowhere.")
    word = json.loads(container(status)["state"]["terminated"]["message"])
    assert word["refused"] == "Slurm has no partition nowhere."
    assert pod("Failed", status).not_submitted == "Slurm has no partition nowhere."


def test_what_is_written_is_known_again_in_whatever_order_and_with_whatever_others_add() -> None:
    wanted = pod_status.of_job(pod(), job(Phase.RUNNING, started_at=STARTED_AT))
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    conditions = [{**item, "lastProbeTime": None} for item in reversed(wanted["conditions"])]
    written = {**wanted, "conditions": [scheduled, *conditions], "qosClass": "BestEffort"}
    assert pod("Running", written).status_digest == digest_of(wanted)


@pytest.mark.parametrize(
    "changed", [{"phase": "Failed"}, {"message": "another"}, {"containerStatuses": []}, {"conditions": []}]
)
def test_what_differs_is_seen_to_differ(changed: dict[str, Any]) -> None:
    wanted = pod_status.of_job(pod(), job(Phase.RUNNING, started_at=STARTED_AT))
    assert digest_of({**wanted, **changed}) != digest_of(wanted)
