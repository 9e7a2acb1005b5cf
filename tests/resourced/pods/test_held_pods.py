"""A refused pod that a controller would make again at once waits with the reason, and runs without it."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.errors import NotAccepted
from redbox_api.models import Problem
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_resourced.pods import reconciler
from redbox_resourced.translation.errors import Unsupported
from redbox_shared.backoff import Backoff
from tests.resourced.pods.pod_life_harness import PodLife, pod_life, until

PLACE = ("alice", "train")


def owned_by(kind: str) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "train", "uid": "u", "controller": True}
    return {"ownerReferences": [owner]}


DEPLOYED = owned_by("ReplicaSet")
ALWAYS = {"restartPolicy": "Always"}
HELD = Unsupported("spec.hostPID is not supported.")


async def held(life: PodLife, reason: str) -> None:
    await until(lambda: life.waiting_reason == reason and not life.pods.queue.unfinished)


async def test_a_refused_pod_of_a_deployment_waits_with_the_sentence_and_one_event() -> None:
    async with pod_life() as life:
        life.refusal = HELD
        life.create(metadata=DEPLOYED, **ALWAYS)
        await held(life, "Unsupported")
        assert life.status["phase"] == "Pending"
        waiting = life.status["containerStatuses"][0]["state"]["waiting"]
        assert waiting["message"] == "spec.hostPID is not supported."
        assert [event["reason"] for event in life.api.events] == ["Unsupported"]


@pytest.mark.parametrize(
    ("metadata", "spec"), [(None, ALWAYS), (owned_by("Job"), {"restartPolicy": "OnFailure"})]
)
async def test_a_pod_that_nobody_makes_again_without_a_pause_fails(
    metadata: dict[str, Any] | None, spec: dict[str, Any]
) -> None:
    async with pod_life() as life:
        life.refusal = HELD
        life.create(metadata=metadata, **spec)
        await until(lambda: life.status["phase"] == "Failed")


async def test_a_held_pod_is_not_tried_again_because_somebody_labels_it() -> None:
    async with pod_life() as life:
        life.refusal = HELD
        life.create(metadata=DEPLOYED, **ALWAYS)
        await held(life, "Unsupported")
        asked = len(life.redbox.asked)
        pod = life.api.objects[ResourcePath(kinds.POD, "train", "alice")]
        life.api.put(
            ResourcePath(kinds.POD, "train", "alice"),
            {**pod, "metadata": {**pod["metadata"], "labels": {"a": "b"}}},
        )
        life.pods.enqueue(PLACE)
        await until(lambda: not life.pods.queue.unfinished)
        assert len(life.redbox.asked) == asked


async def test_when_the_cause_is_gone_a_held_pod_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "HELD", Backoff(0.01, 0.01))
    async with pod_life() as life:
        life.refusal = HELD
        life.create(metadata=DEPLOYED, **ALWAYS)
        await held(life, "Unsupported")
        life.refusal = None
        await until(lambda: "pod-uid" in life.redbox.jobs and life.waiting_reason == "ContainerCreating")


async def test_where_pods_are_off_it_waits_until_they_are_turned_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "HELD", Backoff(3600.0, 3600.0))
    async with pod_life(pods_enabled=False) as life:
        life.create(metadata=DEPLOYED, **ALWAYS)
        await until(lambda: "hpc1" in life.pods.job_feeds and not life.pods.job_feeds["hpc1"].fault)
        await held(life, "PodsNotServed")
        await until(lambda: life.pods._held)
        assert (life.status["phase"], life.redbox.asked) == ("Pending", [])
        life.change_cluster(pods={"enabled": True})
        await until(lambda: "pod-uid" in life.redbox.jobs)


async def test_a_deployment_that_tolerates_every_taint_is_not_made_again_and_again() -> None:
    async with pod_life() as life:
        life.create(metadata=DEPLOYED, tolerations=[{"operator": "Exists"}], **ALWAYS)
        await held(life, "NotRunOnVirtualNode")
        assert life.status["phase"] == "Pending"


async def test_a_refusal_because_of_local_disk_names_the_pods_field() -> None:
    too_much = Problem(
        type="about:blank",
        title="Slurm refuses it",
        status=422,
        detail="Requested node configuration is not available",
    )
    async with pod_life() as life:
        life.request_options = ["--tmp=2048M"]
        life.redbox.refusing_puts = NotAccepted(too_much)
        life.create(restartPolicy="Never")
        await until(lambda: life.status["phase"] == "Failed")
        assert "node configuration is not available" in life.status["message"]
        assert "leave ephemeral-storage out" in life.status["message"]


async def test_a_pod_waits_for_a_red_box_that_does_not_take_all_of_it_yet() -> None:
    refusal = "pod.anything is not a field of this request"
    unknown = Problem(type="about:blank", title="The request is not valid", status=422, detail=refusal)
    async with pod_life() as life:
        life.redbox.refusing_puts = NotAccepted(unknown)
        life.create(restartPolicy="Never")
        await held(life, "RedboxTooOld")
        assert life.pods._submitter.too_old == {"hpc1"}
        life.redbox.refusing_puts = None
        life.pods._answers("hpc1")  # it was upgraded, and lists its jobs
        await until(lambda: "pod-uid" in life.redbox.jobs)
        assert life.pods._submitter.too_old == set()
