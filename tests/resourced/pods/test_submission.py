"""Which pod is a companion, and whose request is used."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, cast

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy, NoSuchJob
from redbox_api.models import Job, OwnerRef, Phase, Problem
from redbox_api.requests.sender import TokenSource
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection
from redbox_resourced.pods import submission as submission_module
from redbox_resourced.pods.pod_view import BoundPod, BoundPodKind, read_pod
from redbox_resourced.pods.submission import (
    PodSubmitter,
    read_request,
    verify_companion,
)
from redbox_resourced.pods.submission_errors import SubmissionPending, SubmissionRejected
from redbox_resourced.translation.pod import translate

REQUEST = json.dumps({"batch": "#!/bin/sh\ntrue\n"})
DIGEST = f"sha256:{hashlib.sha256(REQUEST.encode()).hexdigest()}"


def pod(*, account: str = "default", attempt: str = "1", owner: dict[str, Any] | None = None) -> BoundPod:
    controller = {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmJob",
        "name": "cow",
        "uid": "job-uid",
        "controller": True,
        **(owner or {}),
    }
    return read_pod(
        {
            "metadata": {
                "namespace": "alice",
                "name": "cow-job",
                "uid": "pod-uid",
                "creationTimestamp": "2026-11-21T13:00:00Z",
                "ownerReferences": [controller],
            },
            "spec": {
                "nodeName": "hpc1.debug",
                "serviceAccountName": account,
                "containers": [{"name": "companion", "env": [{"name": "REDBOX_ATTEMPT", "value": attempt}]}],
            },
        }
    )


def slurm_job(**changed: Any) -> dict[str, Any]:
    job: dict[str, Any] = {
        "metadata": {"uid": "job-uid"},
        "spec": {"cluster": "hpc1"},
        "status": {"companion": {"uid": "pod-uid", "attempt": 1, "request": DIGEST}},
    }
    return {**job, **changed}


def named(bound: BoundPod, owner: dict[str, Any] | None, cluster: str = "hpc1") -> str:
    assert bound.controller is not None
    return verify_companion(bound, bound.controller, owner, cluster)


def test_the_pod_that_the_operator_named_is_the_companion() -> None:
    assert named(pod(), slurm_job()) == DIGEST


@pytest.mark.parametrize(
    ("bound", "owner", "cluster", "reason"),
    [
        (pod(), None, "hpc1", "NoSuchOwner"),
        (pod(), slurm_job(metadata={"uid": "recreated"}), "hpc1", "NoSuchOwner"),
        (pod(), slurm_job(status={}), "hpc1", "NotTheCompanion"),
        (pod(), slurm_job(status={"companion": {"uid": "another"}}), "hpc1", "NotTheCompanion"),
        (pod(attempt="2"), slurm_job(), "hpc1", "NotTheCompanion"),
        (pod(account="admin"), slurm_job(), "hpc1", "NotTheCompanion"),
        (
            pod(),
            slurm_job(spec={"cluster": "hpc1", "serviceAccountName": "ci"}),
            "hpc1",
            "NotTheCompanion",
        ),
        (pod(), slurm_job(), "hpc2", "NotTheCompanion"),
    ],
)
def test_no_other_pod_is(bound: BoundPod, owner: dict[str, Any] | None, cluster: str, reason: str) -> None:
    with pytest.raises(SubmissionPending) as refused:
        named(bound, owner, cluster)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("config_map", "reason"),
    [
        (None, "NoRequest"),
        ({"data": {"request.json": REQUEST + " "}}, "RequestChanged"),
        ({"data": {}}, "RequestChanged"),
        ({}, "RequestChanged"),
    ],
)
def test_only_the_request_that_the_operator_froze_is_sent(
    config_map: dict[str, Any] | None, reason: str
) -> None:
    with pytest.raises(SubmissionPending) as refused:
        read_request(config_map, DIGEST)
    assert refused.value.reason == reason


def test_a_request_of_a_newer_operator_is_refused_by_the_field() -> None:
    newer = json.dumps({"batch": "#!/bin/sh\n", "quantum": True})
    digest = f"sha256:{hashlib.sha256(newer.encode()).hexdigest()}"
    with pytest.raises(SubmissionRejected, match="quantum"):
        read_request({"data": {"request.json": newer}}, digest)


class Throttled:
    """A red-box that is busy so many times, and its API server; every question is noted."""

    def __init__(self, times: int, *, existing: Phase | None = None, pause_s: float = 0.001) -> None:
        self.asked: list[str] = []
        self.existing = existing
        self._busy = times
        self._pause_s = pause_s

    async def get(self, where: ResourcePath) -> dict[str, Any]:
        self.asked.append(where.kind.name)
        return slurm_job() if where.kind.name == "SlurmJob" else {"data": {"request.json": REQUEST}}

    async def token_for(self, *_: Any, **__: Any) -> str:
        self.asked.append("token")
        return "token"

    def speaking_for(self, token: TokenSource) -> Speaking:
        return Speaking(self, token)

    def take(self) -> None:
        self.asked.append("PUT")
        if self.asked.count("PUT") <= self._busy:
            raise Busy(problem(429), retry_after=self._pause_s)


@dataclass
class Speaking:
    """The same for one caller, who shows a token with each request."""

    server: Throttled
    token: TokenSource

    async def get_job(self, *_: Any, **__: Any) -> Job:
        await self.token()
        self.server.asked.append("GET")
        if self.server.existing is None:
            raise NoSuchJob(problem(404))
        return job_in(self.server.existing)

    async def put_job(self, *_: Any, **__: Any) -> Job:
        await self.token()
        self.server.take()
        return job_in(Phase.PENDING)


def job_in(phase: Phase) -> Job:
    owner = OwnerRef(cluster="prod", namespace="alice", account="default")
    return Job(key="job-uid", attempt=1, owner=owner, user="alice", phase=phase)


def problem(status: int) -> Problem:
    return Problem(type="t", title="No", status=status, detail="not now", retry=status == 429)


def submission(server: Throttled) -> tuple[PodSubmitter, ClusterConnection]:
    objects = cast("ObjectClient", server)
    spec = {"endpoint": "https://r", "caBundle": "", "audience": "redbox.dev/hpc1/x"}
    cluster = SlurmCluster.model_validate({"metadata": {"name": "hpc1"}, "spec": spec})
    node = ClusterConnection(cluster, cast("RedboxClient", server))
    return PodSubmitter(objects, translate), node


async def test_a_submit_that_is_throttled_waits_its_turn_and_asks_nothing_else_again() -> None:
    server = Throttled(3)
    submit, node = submission(server)
    assert (await submit.attach_or_submit(pod(), node)).key == "job-uid"
    assert server.asked == ["SlurmJob", "ConfigMap", "token", "PUT", "PUT", "PUT", "PUT"]


def without_request() -> BoundPod:
    """A companion whose request another pod submits, so that it cannot be sent for it."""
    return dataclasses.replace(pod(), submitted_by_another=True)


async def test_a_job_is_found_by_a_pod_whose_request_cannot_be_sent() -> None:
    server = Throttled(0, existing=Phase.RUNNING)
    submit, node = submission(server)
    assert (await submit.attach_or_submit(without_request(), node)).phase is Phase.RUNNING
    assert server.asked == ["SlurmJob", "token", "GET"]


@pytest.mark.parametrize("existing", [None, Phase.SUBMITTING])
async def test_without_a_request_nothing_is_submitted(existing: Phase | None) -> None:
    server = Throttled(0, existing=existing)
    submit, node = submission(server)
    with pytest.raises(SubmissionPending) as waits:
        await submit.attach_or_submit(without_request(), node)
    assert (waits.value.reason, "PUT" in server.asked) == ("WaitsForSubmitter", False)


@pytest.mark.parametrize(("pause_s", "puts"), [(0.01, 6), (600.0, 1)])
async def test_one_that_is_throttled_for_long_says_so_and_comes_again(
    monkeypatch: pytest.MonkeyPatch, pause_s: float, puts: int
) -> None:
    """It holds nobody for long: its pod may be deleted meanwhile."""
    monkeypatch.setattr(submission_module, "PUT_WITHIN_S", 0.055)
    server = Throttled(10_000, pause_s=pause_s)
    submit, node = submission(server)
    with pytest.raises(SubmissionPending) as busy:
        await submit.attach_or_submit(pod(), node)
    assert (busy.value.reason, busy.value.after_s) == ("Busy", pause_s)
    assert server.asked.count("PUT") == puts


@pytest.mark.parametrize(
    ("owner", "role"),
    [
        ({}, BoundPodKind.JOB),
        ({"apiVersion": "wlm.sylabs.io/v1alpha1", "kind": "WlmJob"}, BoundPodKind.JOB),
        ({"apiVersion": "slurm.sylabs.io/v1alpha1"}, BoundPodKind.JOB),
        ({"apiVersion": "evil.example/v1"}, BoundPodKind.FOREIGN),
        ({"controller": False}, BoundPodKind.FOREIGN),
        ({"apiVersion": "apps/v1", "kind": "DaemonSet"}, BoundPodKind.DAEMON),
        ({"apiVersion": "batch/v1", "kind": "Job"}, BoundPodKind.FOREIGN),
    ],
)
def test_a_pods_controller_says_what_it_is_to_us(owner: dict[str, Any], role: BoundPodKind) -> None:
    assert pod(owner=owner).role is role


@pytest.mark.parametrize(
    "owner",
    [
        {"name": "../../../../../../api/v1/pods"},
        {"name": ".."},
        {"name": "."},
        {"name": ""},
        {"name": "cow/status"},
        {"name": "cow\n/status"},
        {"name": "..%2f..%2fpods"},
        {"apiVersion": "redbox.dev/.."},
        {"apiVersion": "redbox.dev/v1alpha1/../.."},
        {"apiVersion": "redbox.dev/v1?watch=true"},
        {"apiVersion": "redbox.dev"},
    ],
)
def test_a_pod_whose_controller_nothing_can_be_called_is_a_strangers(owner: dict[str, Any]) -> None:
    assert pod(owner=owner).role is BoundPodKind.FOREIGN


@pytest.mark.parametrize(
    ("written", "attempt"),
    [
        ("2", 2),
        ("999999999", 999_999_999),
        ("9" * 5000, 1),
        ("-1", 1),
        ("٣", 1),
        ("²", 1),
        ("", 1),
        ("2\n", 1),
    ],
)
def test_an_attempt_is_a_number_or_the_first(written: str, attempt: int) -> None:
    assert pod(attempt=written).attempt == attempt
