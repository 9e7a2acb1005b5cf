"""A user with a red-box of their own: a SlurmEndpoint of the namespace, and no right to see SlurmClusters."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kubectl_slurm.errors import Refusal
from kubectl_slurm.kubectl.program import Kubectl as Program
from kubectl_slurm.slurmjobs.clusters import ClusterView
from kubectl_slurm.slurmjobs.redbox.answers import IdentityAtRedbox
from kubectl_slurm.slurmjobs.redbox.requests import RedboxAccess, RedboxNotReached, access_of
from redbox_clusters.slurm_endpoint import audience_of
from tests.cli.factories import slurmcluster, slurmjob
from tests.cli.harness import Kubectl, run


def slurmendpoint(name: str = "mine") -> dict[str, Any]:
    obj = slurmcluster(partitionNames=["own"], partitions=[{"name": "own", "state": "UP"}])
    metadata = {"name": name, "namespace": "alice", "uid": "17", "generation": 1}
    return {**obj, "kind": "SlurmEndpoint", "metadata": metadata}


def of_endpoint(name: str = "train-abc12", phase: str = "Running", **more: Any) -> dict[str, Any]:
    return slurmjob(name, phase, cluster=None, endpoint="mine", **more)


def test_partitions_of_an_endpoint_are_shown_without_a_right_to_see_clusters(kubectl: Kubectl) -> None:
    kubectl.forgets("clusters")
    kubectl.answers("endpoints", [slurmendpoint()])
    ended = run(kubectl, "info")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[1].startswith("own ")


def test_without_any_the_missing_right_is_reported(kubectl: Kubectl) -> None:
    kubectl.forgets("clusters")
    ended = run(kubectl, "info")
    assert ended.returncode == 1
    assert "does not allow" in ended.stderr


def test_a_job_is_submitted_to_an_endpoint_or_to_a_cluster(kubectl: Kubectl) -> None:
    kubectl.answers("endpoints", [slurmendpoint()])
    kubectl.answers("job", of_endpoint(state="RUNNING"))
    assert run(kubectl, "submit", "--endpoint", "mine", "--wrap", "true").returncode == 0
    assert kubectl.created["spec"]["endpoint"] == "mine"
    both = run(kubectl, "submit", "--endpoint=mine", "--cluster=hpc1", "--wrap", "true")
    assert (both.returncode, both.stdout) == (2, "")


def test_a_refused_job_gets_the_partitions_of_its_own_endpoint(kubectl: Kubectl) -> None:
    kubectl.answers("endpoints", [slurmendpoint()])
    refused = of_endpoint(phase="Failed", jobID=None, message="Slurm has no such partition.")
    kubectl.answers("job", refused)
    ended = run(kubectl, "submit", "--endpoint=mine", stdin="#!/bin/sh\n#SBATCH -p x\n")
    assert ended.returncode == 65
    assert "The partitions of mine: own." in ended.stderr


def test_a_wide_queue_names_the_endpoint(kubectl: Kubectl) -> None:
    kubectl.answers("jobs", [of_endpoint(state="RUNNING")])
    assert "mine" in run(kubectl, "queue", "-o", "wide").stdout.splitlines()[1].split()


@pytest.mark.parametrize("endpoint", ["https://x:99999", "https://[", f"https://{'x' * 70}"])
def test_an_address_that_is_none_is_a_red_box_that_is_not_reached(endpoint: str) -> None:
    """Whoever may write a SlurmEndpoint chooses it, and `doctor` asks all of them."""
    with pytest.raises(RedboxNotReached):
        RedboxAccess(endpoint, "", "token").get(IdentityAtRedbox, "/v1/whoami")


def test_an_authority_that_is_none_is_a_sentence() -> None:
    obj = slurmendpoint()
    obj["spec"] = {"endpoint": "https://x", "caBundle": base64.b64encode("\xe9".encode()).decode()}
    with pytest.raises(Refusal, match="caBundle of SlurmEndpoint mine"):
        access_of(Program("/nonexistent"), ClusterView(obj), "default")


def test_the_audience_is_the_operators() -> None:
    obj = slurmendpoint()
    obj["spec"]["audience"] = "redbox.dev/hpc1"
    assert ClusterView(obj).audience == audience_of(obj["metadata"])
