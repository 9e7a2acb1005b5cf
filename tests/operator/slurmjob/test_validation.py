"""What is wrong with a SlurmJob as it is written, in words that name the cure."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_clusters.names import OLD_SLURM_JOBS
from redbox_clusters.node_labels import partition_label
from redbox_operator.slurmjob.validation import problem_of, problem_of_cluster, problem_of_partition
from tests.operator.factories import partition, slurm_cluster, slurm_job

PORT = {"name": "a", "port": 8080}
CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}


def test_a_job_with_nothing_wrong_has_no_problem() -> None:
    assert problem_of(slurm_job()) is None
    assert problem_of_cluster(slurm_job(), {"hpc1"}) is None


@pytest.mark.parametrize(
    ("name", "spec", "reason", "words"),
    [
        ("c" * 60, {}, "NameTooLong", "at most 59"),
        ("cow", {"ports": [PORT], "array": "0-3"}, "Invalid", "one SlurmJob a task"),
        ("cow", {"ports": [PORT, {**PORT, "name": "b"}]}, "Invalid", "port 8080 more than once"),
        ("cow", {"ports": [{"name": "a", "port": 10282}]}, "Invalid", "take another"),
        (
            "cow",
            {"partition": "debug", "nodeSelector": {"redbox.dev/partition": "long"}},
            "Contradiction",
            "remove one of them",
        ),
        (
            "cow",
            {"nodeSelector": {"redbox.dev/cluster": "hpc2"}},
            "Contradiction",
            "spec.cluster is hpc1",
        ),
        (
            "cow",
            {"results": {"from": ["a"], "volume": {"hostPath": {"path": "/etc"}}}},
            "VolumeNotAllowed",
            "hostPath: use persistentVolumeClaim, nfs or ephemeral",
        ),
        (
            "cow",
            {"results": {"from": ["a", "out/../../b"], "volume": CLAIM}},
            "Invalid",
            "results.from has out/../../b: remove the .. or give an absolute path",
        ),
        (
            "cow",
            {"env": [{"name": f"A{i}", "value": "x" * 131_072} for i in range(8)]},
            "TooLarge",
            "more than 1000000: make it smaller",
        ),
    ],
)
def test_what_can_never_be_submitted_says_so_and_names_the_cure(
    name: str, spec: dict[str, Any], reason: str, words: str
) -> None:
    problem = problem_of(slurm_job(name, **spec))
    assert problem is not None
    assert problem.reason == reason
    assert words in problem.message
    assert problem.final


@pytest.mark.parametrize(
    ("spec", "clusters", "reason", "words"),
    [
        ({"cluster": None}, {"hpc1", "hpc2"}, "ClusterNotNamed", "hpc1, hpc2"),
        ({"cluster": None}, set(), "ClusterNotNamed", "none"),
        ({"cluster": "hpc3"}, {"hpc1"}, "NoSuchCluster", "create it"),
    ],
)
def test_a_job_of_no_known_cluster_may_still_be_cured(
    spec: dict[str, Any], clusters: set[str], reason: str, words: str
) -> None:
    problem = problem_of_cluster(slurm_job(**spec), clusters)
    assert problem is not None
    assert problem.reason == reason
    assert words in problem.message
    assert not problem.final


def test_a_partition_that_a_virtual_cluster_lacks_is_named_with_those_that_there_are() -> None:
    there = [partition(name) for name in ("debug", "long und breit")]
    virtual = slurm_cluster(delivery="Virtual")
    problem = problem_of_partition(slurm_job(partition="debgu"), virtual, there)
    assert problem is not None
    assert (problem.reason, problem.final) == ("NoSuchPartition", False)
    assert "has no partition debgu (only: debug, long und breit)" in problem.message
    label: dict[str, Any] = {"nodeSelector": {"redbox.dev/partition": partition_label("long und breit")}}
    for job in (slurm_job(), slurm_job(partition="debug"), slurm_job(**label)):
        assert problem_of_partition(job, virtual, there) is None
    assert problem_of_partition(slurm_job(partition="debgu"), virtual, None) is None  # not listed yet
    assert problem_of_partition(slurm_job(partition="debgu"), slurm_cluster(), there) is None
    many = [partition(f"p{number}") for number in range(100)]
    told = problem_of_partition(slurm_job(partition="debgu"), virtual, many)
    assert told is not None
    assert "and 80 more" in told.message


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/srv/results", True),
        ("/srv/results/", True),
        ("/srv/results/cow/deep", True),
        ("/srv/results-of-others", False),
        ("/srv/results/../../etc", False),
        ("/srv//results/x", False),
        ("/srv", False),
        ("srv/results", False),
        ("", False),
    ],
)
def test_a_host_path_of_an_old_kind_is_allowed_below_named_folders_only(path: str, allowed: bool) -> None:  # noqa: FBT001
    results = {"from": ["a"], "volume": {"hostPath": {"path": path}}}
    job = slurm_job(results=results).model_copy(update={"resource": OLD_SLURM_JOBS})
    problem = problem_of(job, ["/data/", "/srv/results"])
    assert (problem is None) is allowed
    if problem:
        assert "or a hostPath below /data/, /srv/results" in problem.message
    assert problem_of(job) is not None
    assert problem_of(slurm_job(results=results), ["/"]) is not None  # our own kind has none
