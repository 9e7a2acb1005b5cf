"""A typing error in a name is one sentence with the names that there are, and nothing is created."""

from __future__ import annotations

import pytest

from tests.cli.factories import slurmcluster, slurmjob
from tests.cli.harness import Kubectl, run


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--partition=debgu", "there is no partition debgu: hpc1 has debug"),
        ("--partition=debug,lnog", "there is no partition lnog: hpc1 has debug"),
        ("--cluster=hcp1", "there is no SlurmCluster hcp1: there is SlurmCluster hpc1"),
        ("--endpoint=mien", "there is no SlurmEndpoint mien: there is SlurmCluster hpc1"),
        (
            "--service-account=defualt",
            "there is no service account defualt in namespace alice: there is default",
        ),
        ("--collect=out=resluts", "there is no claim resluts in namespace alice: there is results"),
    ],
)
def test_a_name_of_nothing_is_refused_with_those_that_there_are(
    kubectl: Kubectl, option: str, sentence: str
) -> None:
    kubectl.answers("clusters", [slurmcluster(partitionNames=["debug"])])
    ended = run(kubectl, "submit", option, "--wrap", "true")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert sentence in ended.stderr
    assert not [call for call in kubectl.calls if "create" in call]


@pytest.mark.parametrize(
    "options",
    [
        ("-p", "debug"),
        ("--cluster=hpc1", "-p", "debug"),
        ("--service-account=default",),
        ("--collect=out=results",),
    ],
)
def test_a_name_that_there_is_is_submitted(kubectl: Kubectl, options: tuple[str, ...]) -> None:
    kubectl.answers("clusters", [slurmcluster(partitionNames=["debug"])])
    kubectl.answers("job", slurmjob(state="RUNNING"))
    assert run(kubectl, "submit", *options, "--wrap", "true").returncode == 0


def test_a_partition_of_a_cluster_that_may_not_be_seen_is_left_to_slurm(kubectl: Kubectl) -> None:
    kubectl.forgets("clusters")
    endpoint = slurmcluster(partitionNames=["own"])
    metadata = {"name": "mine", "namespace": "alice", "uid": "17", "generation": 1}
    kubectl.answers("endpoints", [{**endpoint, "kind": "SlurmEndpoint", "metadata": metadata}])
    kubectl.answers("job", slurmjob(state="RUNNING"))
    assert run(kubectl, "submit", "-p", "hidden", "--cluster=hpc1", "--wrap", "true").returncode == 0


def test_a_partition_may_be_newer_than_an_old_list(kubectl: Kubectl) -> None:
    unreachable = {"type": "Reachable", "status": "False", "reason": "NoAnswer", "message": "no answer"}
    kubectl.answers("clusters", [slurmcluster(partitionNames=["debug"], conditions=[unreachable])])
    kubectl.answers("job", slurmjob(state="RUNNING"))
    assert run(kubectl, "submit", "-p", "new", "--wrap", "true").returncode == 0
