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

from redbox.tls import make_authority
from redbox_bed.delivery import Kubernetes
from redbox_bed.errors import BedError
from redbox_bed.host import Host
from tests.e2e import kubernetes_jobs
from tests.e2e.kubernetes_jobs import SlurmJob, Tenant, eventually

login, kubectl, alice = kubernetes_jobs.login, kubernetes_jobs.kubectl, kubernetes_jobs.alice


def is_told_once(job: SlurmJob, reason: str, *words: str) -> dict[str, Any]:
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
        ({"partition": "nowhere"}, "Refused", ("partition",), "Failed"),
        (
            {"serviceAccountName": "nobody"},
            "NoServiceAccount",
            ("nobody", "create the service account"),
            "Pending",
        ),
        ({"options": ["--uid=0"]}, "Refused", ("--uid",), "Failed"),
        ({"env": SECRET_ENV}, "CompanionNotStarted", ("no-such-secret", "Create what is missing"), "Pending"),
    ],
    ids=["cluster", "partition", "service account", "an option that is not allowed", "Secret"],
)
def test_what_is_missing_or_refused(
    alice: Tenant, spec: dict[str, Any], reason: str, words: tuple[str, ...], phase: str
) -> None:
    job = alice.apply(**spec)
    healthy = alice.apply()
    status = is_told_once(job, reason, *words)
    assert status["phase"] == phase
    healthy.reaches("Succeeded")
    assert job.in_slurm() == []


def test_a_script_that_slurm_refuses(alice: Tenant) -> None:
    job = alice.apply("#!/bin/sh\n#SBATCH --nodes=1000\ntrue\n")
    status = is_told_once(job, "Refused")
    assert (status["phase"], job.conditions["Failed"]) == ("Failed", ("True", "Failed"))


def test_a_namespace_that_no_rule_maps(kubectl: Kubernetes, login: Host) -> None:
    name = f"nobody-{uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    try:
        job = Tenant(kubectl, login, name).apply()
        is_told_once(job, "Refused", name)
    finally:
        kubectl("delete", "namespace", name, "--timeout=60s")


def test_a_secret_that_comes_later_is_all_that_was_missing(alice: Tenant) -> None:
    name = f"s-{uuid4().hex[:6]}"
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}}]
    job = alice.apply("#!/bin/sh\n[ $TOKEN = pst ]\n", env=env)
    job.says("Submitted", "CompanionNotStarted")
    alice.kubectl("create", "secret", "generic", name, "-n=alice", "--from-literal=token=pst")
    try:
        job.reaches("Succeeded")
    finally:
        alice.kubectl("delete", "secret", name, "-n=alice")


def test_a_quota_that_is_used_up_is_waited_for(alice: Tenant) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "full", "namespace": "alice"},
        "spec": {"hard": {"pods": "0"}},
    }
    alice.kubectl.apply(json.dumps(quota))
    try:
        eventually(lambda: "hard" in _status(alice, "resourcequota", "full"), what="a quota that counts")
        job = alice.apply()
        is_told_once(job, "QuotaExceeded", "exceeded quota", "larger quota")
    finally:
        alice.kubectl("delete", "resourcequota", "full", "-n=alice")
    job.reaches("Succeeded")


def _status(tenant: Tenant, kind: str, name: str) -> dict[str, Any]:
    return dict(SlurmJob(tenant, "").get(kind, name).get("status", {}))


def test_a_name_that_is_too_long_for_a_pod_is_refused_when_it_is_applied(alice: Tenant) -> None:
    with pytest.raises(BedError, match="at most 59 characters"):
        alice.apply(name="n" * 60)
    alice.made.clear()


@pytest.fixture
def other_cluster(kubectl: Kubernetes) -> Iterator[str]:
    """A SlurmCluster with a CA that did not sign red-box's certificate."""
    with cluster_with(kubectl, make_authority("wrong", datetime.now(UTC)).certificate) as name:
        yield name


@contextmanager
def cluster_with(kubectl: Kubernetes, ca: bytes) -> Iterator[str]:
    real = json.loads(kubectl("get", "slurmcluster", "hpc1", "-o=json"))["spec"]
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
        kubectl("delete", "slurmcluster", name, "--ignore-not-found", "--timeout=60s")


def test_a_ca_that_is_no_certificate_is_said_at_the_slurmjob(kubectl: Kubernetes, alice: Tenant) -> None:
    with cluster_with(kubectl, b"no certificate") as name:
        job = alice.apply(cluster=name)
        is_told_once(job, "ClusterMisconfigured", name, "caBundle")
        job.delete()


def test_a_wrong_certificate_is_said_once_of_the_slurmcluster(alice: Tenant, other_cluster: str) -> None:
    def reachable() -> dict[str, Any] | None:
        found = alice.kubectl("get", "slurmcluster", other_cluster, "-o=json")
        conditions = json.loads(found).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == "Reachable"), None)

    condition = eventually(reachable, what="a condition of the SlurmCluster")
    assert condition["status"] == "False"
    assert "certificate" in condition["message"].lower()
    stuck, healthy = alice.apply(cluster=other_cluster), alice.apply()
    healthy.reaches("Succeeded")
    assert stuck.status["phase"] == "Pending"
    alice.kubectl("annotate", "slurmjob", stuck.name, "-n=alice", "redbox.dev/abandon=true")
    stuck.delete()


def test_a_slurmcluster_with_unfinished_jobs_waits_for_them_and_names_them(
    alice: Tenant, other_cluster: str
) -> None:
    job = alice.apply(cluster=other_cluster)
    eventually(lambda: job.status.get("companion"), what="a companion")
    alice.kubectl("delete", "slurmcluster", other_cluster, "--wait=false")

    def named() -> bool:
        found = json.loads(alice.kubectl("get", "slurmcluster", other_cluster, "-o=json"))
        return any(job.name in one["message"] for one in found["status"].get("conditions", []))

    eventually(named, what="a condition that names the SlurmJob")
    alice.kubectl("annotate", "slurmjob", job.name, "-n=alice", "redbox.dev/abandon=true")
    job.delete()
    gone = ("get", "slurmcluster", other_cluster, "--ignore-not-found")
    eventually(lambda: not alice.kubectl(*gone).strip(), what="the SlurmCluster's end")
