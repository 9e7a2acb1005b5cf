"""What is validated of volumes and variables is what the pod has, for every kind and any object."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redbox_clusters.names import SLURM_JOBS, WLM_JOBS
from redbox_kube.api.kinds import Kind
from redbox_operator.api.decode import RESOURCES, read_job
from redbox_operator.companion_pods.builder import CompanionProgram, companion_pod
from redbox_operator.slurmjob.validation import problem_of
from tests.operator.factories import slurm_cluster

ALLOWED = "/srv/results"
TEMPLATE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
VALID_VOLUMES: dict[str, Any] = {
    "persistentVolumeClaim": {"claimName": "c"},
    "nfs": {"server": "10.0.0.1", "path": "/export"},
    "ephemeral": {"volumeClaimTemplate": TEMPLATE},
    "hostPath": {"path": f"{ALLOWED}/alice"},
}
VALID_REFERENCES: dict[str, Any] = {
    "secretKeyRef": {"name": "s", "key": "k"},
    "configMapKeyRef": {"name": "c", "key": "k"},
    "fieldRef": {"fieldPath": "metadata.namespace"},
}
OTHER_NAMES = ("emptyDir", "secret", "projected", "csi", "host_path", "hostpath", "x", "resourceFieldRef")
JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, {}, [], "", "/", 7, True, {"path": "/"}, {"path": None}, {"path": "/etc", "type": "File"}]
)


def objects(valid: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Up to three sources, each of them right, wrong, null, or unknown."""
    source = st.sampled_from([*valid, *OTHER_NAMES]).flatmap(
        lambda name: st.tuples(st.just(name), st.one_of(st.just(valid.get(name, {})), JUNK))
    )
    return st.lists(source, max_size=3).map(dict)


def job_of(resource: Kind, **spec: Any) -> dict[str, Any]:
    program = {"image": "a.sif"} if resource == WLM_JOBS else {"batch": "#!/bin/sh\n"}
    return {"metadata": {"name": "cow", "namespace": "alice", "uid": "u"}, "spec": program | spec}


def job_with(volume: dict[str, Any], resource: Kind) -> dict[str, Any]:
    if resource == SLURM_JOBS:
        return job_of(resource, results={"from": ["a"], "volume": volume})
    return job_of(resource, results={"from": "a", "mount": {"name": "v", **volume}})


def names_of(sources: dict[str, Any]) -> set[str]:
    return {name for name, source in sources.items() if source is not None}


def check(resource: Kind, volume: dict[str, Any]) -> None:
    job = read_job(resource, job_with(volume, resource))
    problem = problem_of(job, [ALLOWED])
    names = names_of(volume)
    if problem is not None:
        assert problem.final
        assert len(names) < 2 or all(name in problem.message for name in names)
        return
    pod = companion_pod(job, slurm_cluster(), 1, CompanionProgram("image"))
    [emitted] = [each for each in pod["spec"]["volumes"] if each.pop("name") == "results"]
    assert len(names) == 1
    if names == {"host_path"}:  # the model's own name of the field
        volume = {"hostPath": volume["host_path"]}
    if emitted.keys() == {"hostPath"}:
        assert resource != SLURM_JOBS
        assert emitted["hostPath"] == {"path": volume["hostPath"]["path"], "type": "DirectoryOrCreate"}
        assert emitted["hostPath"]["path"].startswith(ALLOWED)
    else:
        assert emitted == {name: volume[name] for name in emitted}
        assert emitted.keys() < VALID_VOLUMES.keys()


@given(st.sampled_from(RESOURCES), objects(VALID_VOLUMES))
@settings(max_examples=500, deadline=None)
def test_the_volume_that_is_mounted_is_the_one_that_was_validated(
    resource: Kind, volume: dict[str, Any]
) -> None:
    check(resource, volume)


@pytest.mark.parametrize("resource", RESOURCES)
@pytest.mark.parametrize("decoy", ["nfs", "persistentVolumeClaim", "ephemeral"])
def test_a_host_path_beside_another_source_is_refused_by_both_names(resource: Kind, decoy: str) -> None:
    volume = {decoy: VALID_VOLUMES[decoy], "hostPath": {"path": "/", "type": "Directory"}}
    problem = problem_of(read_job(resource, job_with(volume, resource)), [ALLOWED])
    assert problem is not None
    assert problem.reason == "Unreadable"
    assert f"{' and '.join(sorted(volume))}: keep exactly one" in problem.message


@given(objects(VALID_REFERENCES))
@settings(max_examples=300, deadline=None)
def test_the_source_of_a_variable_is_the_one_that_was_validated(source: dict[str, Any]) -> None:
    job = read_job(SLURM_JOBS, job_of(SLURM_JOBS, env=[{"name": "A", "valueFrom": source}]))
    problem, names = problem_of(job), names_of(source)
    if problem is not None:
        assert len(names) < 2 or all(name in problem.message for name in names)
        return
    pod = companion_pod(job, slurm_cluster(), 1, CompanionProgram("image"))
    [value] = [each["valueFrom"] for each in pod["spec"]["containers"][0]["env"] if "valueFrom" in each]
    assert len(names) == 1
    assert value == {name: source[name] for name in value}
    assert value.keys() <= VALID_REFERENCES.keys()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"batchFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}, "batch and batchFrom are set"),
        ({"container": {"image": "a.sif"}}, "batch and container are set"),
        ({"cluster": "a", "endpoint": "b"}, "cluster and endpoint are set"),
        (
            {"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]},
            "value and valueFrom are set",
        ),
        ({"batch": None, "batchFrom": {"configMapKeyRef": {}, "secretKeyRef": {}}}, "configMapKeyRef and s"),
    ],
)
def test_two_of_what_may_be_one_are_refused_by_both_names(spec: dict[str, Any], words: str) -> None:
    problem = problem_of(read_job(SLURM_JOBS, job_of(SLURM_JOBS, **spec)))
    assert problem is not None
    assert words in problem.message
