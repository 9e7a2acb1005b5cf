"""What cannot work ends in one condition and one event that name the cure, and delays nobody else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import yaml

from redbox.server.certificates import make_authority
from redbox_bed.core.errors import BedError
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.usefixtures("delivery"), pytest.mark.nightly(delivery="Virtual")]


def is_told_once(job: Applied, reason: str, *words: str) -> dict[str, Any]:
    """One condition and one event with this reason, which names the cure."""
    status = job.says("Submitted", reason)
    for word in words:
        assert word in status["message"], status["message"]
    told = eventually(job.events, what="an event")
    assert told.count(reason) == 1
    assert "Failed" not in told
    return status


SECRET_ENV = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "no-such-secret", "key": "token"}}}]


@pytest.mark.parametrize(
    ("spec", "reason", "words", "phase"),
    [
        ({"cluster": "nowhere"}, "NoSuchCluster", ("nowhere", "create it"), "Pending"),
        (
            {"serviceAccountName": "nobody"},
            "NoServiceAccount",
            ("nobody", "create the service account"),
            "Pending",
        ),
        ({"options": ["--uid=0"]}, "Refused", ("--uid",), "Failed"),
        (
            {"env": SECRET_ENV},
            "CompanionNotStarted",
            ("no-such-secret", "Create the missing object"),
            "Pending",
        ),
    ],
    ids=["cluster", "service account", "an option that is not allowed", "Secret"],
)
def test_what_is_missing_or_refused(
    jobs: SlurmJobs, spec: dict[str, Any], reason: str, words: tuple[str, ...], phase: str
) -> None:
    job = jobs.apply("true", **spec)
    healthy = jobs.apply("true")
    status = is_told_once(job, reason, *words)
    assert status["phase"] == phase
    healthy.reaches("Succeeded")
    assert job.in_slurm() == []


def test_a_partition_that_there_is_not(jobs: SlurmJobs, delivery: str) -> None:
    """Slurm refuses it where it is asked; with a virtual node its partition may still come."""
    reason, word, phase = {
        "Container": ("Refused", "partition", "Failed"),
        "Virtual": ("NoSuchPartition", "has no partition nowhere (only: ", "Pending"),
    }[delivery]
    job = jobs.apply("true", partition="nowhere")
    healthy = jobs.apply("true")
    assert is_told_once(job, reason, word)["phase"] == phase
    healthy.reaches("Succeeded")
    assert job.in_slurm() == []


def test_what_slurm_refuses_it_is_asked_once(jobs: SlurmJobs) -> None:
    """Of each refused submit Slurm keeps a record: a second one would be seen."""
    applied = [jobs.apply("true", resources={"gpusPerNode": "900"}) for _ in range(8)]
    for job in applied:
        status = job.reaches("Failed")
        assert "Requested node configuration is not available" in status["message"]
    eventually(lambda: [len(job.in_slurm()) for job in applied] == [1] * len(applied))


def test_a_script_that_slurm_refuses(jobs: SlurmJobs) -> None:
    job = jobs.apply("#SBATCH --gres=gpu:900\ntrue")
    status = is_told_once(job, "Refused")
    assert (status["phase"], job.conditions["Failed"]) == ("Failed", ("True", "Failed"))


def test_a_namespace_that_no_rule_maps(jobs: SlurmJobs) -> None:
    name = f"nobody-{uuid4().hex[:6]}"
    jobs.kubectl("create", "namespace", name)
    try:
        is_told_once(jobs.apply("true", namespace=name), "Refused", name)
    finally:
        jobs.kubectl("delete", "namespace", name, "--timeout=60s")


def test_a_secret_that_comes_later_is_all_that_was_missing(jobs: SlurmJobs) -> None:
    name = new_name()
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}}]
    job = jobs.apply("[ $TOKEN = pst ]", env=env)
    job.says("Submitted", "CompanionNotStarted")
    job("create", "secret", "generic", name, "--from-literal=token=pst")
    try:
        job.reaches("Succeeded")
    finally:
        job("delete", "secret", name)


def test_a_quota_that_is_used_up_is_waited_for(jobs: SlurmJobs) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": "alice"},
        "spec": {"hard": {"pods": "0"}},
    }
    jobs.kubectl.apply(json.dumps(quota))
    quota_of_alice = ("resourcequota", "full")
    try:
        eventually(
            lambda: jobs.kubectl.get(*quota_of_alice, "alice")["status"].get("hard"),
            what="a quota that counts",
        )
        job = jobs.apply("true")
        is_told_once(job, "QuotaExceeded", "exceeded quota", "larger quota")
    finally:
        jobs.kubectl.delete(*quota_of_alice, namespace="alice")
    job.reaches("Succeeded")


def test_a_name_that_is_too_long_for_a_pod_is_refused_when_it_is_applied(jobs: SlurmJobs) -> None:
    with pytest.raises(BedError, match="at most 59 characters"):
        jobs.apply("true", name="n" * 60)


@pytest.fixture
def other_cluster(jobs: SlurmJobs) -> Iterator[str]:
    """A SlurmCluster with a CA that did not sign red-box's certificate."""
    with cluster_with(jobs.kubectl, make_authority("wrong", datetime.now(UTC)).certificate) as name:
        yield name


@contextmanager
def cluster_with(kubectl: Kubernetes, ca: bytes) -> Iterator[str]:
    real = kubectl.get("slurmcluster", "hpc1")["spec"]
    name = f"c-{uuid4().hex[:6]}"
    spec = {**real, "caBundle": base64.b64encode(ca).decode()}
    manifest = {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmCluster",
        "metadata": {"name": name},
        "spec": spec,
    }
    kubectl.apply(yaml.safe_dump(manifest))
    try:
        yield name
    finally:
        kubectl.delete("slurmcluster", name)


def test_a_ca_that_is_no_certificate_is_said_at_the_slurmjob(jobs: SlurmJobs) -> None:
    with cluster_with(jobs.kubectl, b"no certificate") as name:
        job = jobs.apply("true", cluster=name)
        is_told_once(job, "ClusterMisconfigured", name, "caBundle")
        job.delete()


def test_a_wrong_certificate_is_said_once_of_the_slurmcluster(jobs: SlurmJobs, other_cluster: str) -> None:
    def reachable() -> dict[str, Any] | None:
        conditions = jobs.kubectl.get("slurmcluster", other_cluster).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == "Reachable"), None)

    condition = eventually(reachable, what="a condition of the SlurmCluster")
    assert condition["status"] == "False"
    assert "certificate" in condition["message"].lower()
    stuck, healthy = jobs.apply("true", cluster=other_cluster), jobs.apply("true")
    healthy.reaches("Succeeded")
    stuck.comes_to(phase="Pending")
    stuck.abandon()
    stuck.delete()


def test_a_slurmcluster_with_unfinished_jobs_waits_for_them_and_names_them(
    jobs: SlurmJobs, other_cluster: str
) -> None:
    job = jobs.apply("true", cluster=other_cluster)
    job.until(lambda status: status.get("companion"))
    jobs.kubectl("delete", "slurmcluster", other_cluster, "--wait=false")

    def named() -> bool:
        found = jobs.kubectl.get("slurmcluster", other_cluster)
        return any(job.name in one["message"] for one in found["status"].get("conditions", []))

    eventually(named, what="a condition that names the SlurmJob")
    job.abandon()
    job.delete()
    eventually(lambda: not jobs.kubectl.get("slurmcluster", other_cluster), what="the SlurmCluster's end")
