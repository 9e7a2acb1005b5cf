"""What the real API server takes of SlurmJobs and SlurmClusters, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_operator.api.crds import all_crds
from redbox_operator.api.slurmjob import MUTABLE
from tests.e2e.harness.kubernetes import Kubernetes

WHOLE: dict[str, Any] = {
    "cluster": "hpc1",
    "container": {
        "image": "docker://hub/cow",
        "command": ["cowsay"],
        "args": ["moo"],
        "options": {"cleanEnv": True, "binds": ["/data"], "gpus": "nvidia"},
        "registrySecret": "hub",
    },
    "partition": "GPU_big",
    "account": "physics",
    "qos": "normal",
    "resources": {"nodes": 1, "tasks": 2, "memPerNode": "4G", "gpusPerNode": "a100:2", "time": "1-00:00:00"},
    "env": [
        {"name": "A", "value": "b"},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
    ],
    "workingDirectory": "/scratch",
    "output": "%x-%j.out",
    "error": "%x-%j.err",
    "array": "0-9%2",
    "begin": "now+1hour",
    "dependsOn": [{"name": "other", "type": "afterany"}],
    "options": ["--exclusive"],
    "results": {
        "from": ["out"],
        "folder": "a/b",
        "when": "Failed",
        "volume": {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
    },
    "serviceAccountName": "default",
    "nodeSelector": {"disk": "ssd"},
    "suspend": True,
    "hold": True,
    "backoffLimit": 3,
    "ttlSecondsAfterFinished": 60,
}


@pytest.fixture(scope="module")
def kubectl(bed: Bed) -> Kubernetes:
    kubectl = Kubernetes(bed)
    kubectl.apply(yaml.safe_dump_all(all_crds()))
    kubectl("wait", "--for=condition=Established", "crd/slurmjobs.redbox.dev", "crd/slurmclusters.redbox.dev")
    return kubectl


def slurm_job(name: str = "cow", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmJob", "metadata": metadata, "spec": spec}


def leaves(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value that is neither a map nor a list, by its path."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, f"{path}[{index}]")
    else:
        yield path, node


def refusal(kubectl: Kubernetes, manifest: dict[str, Any]) -> str:
    with pytest.raises(BedError) as refused:
        kubectl.create(manifest, dryRun="All")
    return str(refused.value)


def test_a_job_that_says_everything_is_taken_whole(kubectl: Kubernetes) -> None:
    made = kubectl.create(slurm_job(**WHOLE), dryRun="All")
    assert set(leaves(WHOLE)) <= set(leaves(made["spec"]))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "set exactly one of batch, batchFrom and container"),
        ({"batch": "a", "container": {"image": "b"}}, "set exactly one of batch, batchFrom and container"),
        ({"batch": "a", "nonsense": 1}, 'unknown field "spec.nonsense"'),
        ({"batch": "a" * 200_001}, "spec.batch: Too long"),
        ({"batch": "a", "resources": {"nodes": 0}}, "spec.resources.nodes"),
        ({"batch": "a", "resources": {"time": "soon"}}, "as --time: 90 (minutes), 2:00:00"),
        ({"batch": "a", "array": "1;rm"}, "spec.array"),
        ({"batch": "a", "env": [{"name": "A"}, {"name": "A"}]}, "spec.env[1]: Duplicate value"),
        ({"batch": "a", "env": [{"name": "1A"}]}, "spec.env[0].name"),
        ({"batch": "a", "env": [{"name": "A", "value": "b", "valueFrom": {}}]}, "set value or valueFrom"),
        (
            {"batch": "a", "env": [{"name": "A", "valueFrom": {}}]},
            "set exactly one of secretKeyRef, configMapKeyRef, fieldRef",
        ),
        (
            {"batch": "a", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]},
            "spec.env[0].valueFrom.fieldRef.fieldPath",
        ),
        ({"batch": "a", "dependsOn": [{"name": "b", "type": "later"}]}, "spec.dependsOn[0].type"),
        (
            {"batch": "a", "results": {"from": ["x"], "volume": {"hostPath": {"path": "/"}}}},
            'unknown field "spec.results.volume.hostPath"',
        ),
        (
            {"batch": "a", "results": {"from": ["x"], "volume": {}}},
            "set exactly one of persistentVolumeClaim, nfs, ephemeral",
        ),
        (
            {
                "batch": "a",
                "results": {
                    "from": ["x"],
                    "folder": "../up",
                    "volume": {"nfs": {"server": "s", "path": "/"}},
                },
            },
            "spec.results.folder",
        ),
        ({"batch": "a", "backoffLimit": -1}, "spec.backoffLimit"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(kubectl: Kubernetes, spec: dict[str, Any], words: str) -> None:
    assert words in refusal(kubectl, slurm_job(**spec))


def test_a_name_that_no_pod_could_carry_is_refused(kubectl: Kubernetes) -> None:
    assert "at most 59 characters" in refusal(kubectl, slurm_job("c" * 60, batch="a"))
    kubectl.create(slurm_job("c" * 59, batch="a"), dryRun="All")


@pytest.fixture(scope="module")
def job(kubectl: Kubernetes) -> Iterator[str]:
    """One that is there, and goes nowhere."""
    kubectl.create(slurm_job("schema", **{**WHOLE, "cluster": "nowhere"}))
    yield "schema"
    kubectl.delete("slurmjob", "schema", namespace="default")


@pytest.mark.parametrize("field", sorted(WHOLE.keys() - MUTABLE))
def test_a_job_that_is_there_cannot_be_changed(kubectl: Kubernetes, job: str, field: str) -> None:
    other: object = {"container": {"image": "other"}, "backoffLimit": 9, "serviceAccountName": "other"}.get(
        field
    )
    with pytest.raises(BedError, match=f"{field} is immutable"):
        kubectl.patch("slurmjob", job, {"spec": {field: other}}, "default", dryRun="All")


@pytest.mark.parametrize("field", sorted(MUTABLE))
def test_but_for_what_is_meant_to_be_changed(kubectl: Kubernetes, job: str, field: str) -> None:
    kubectl.patch("slurmjob", job, {"spec": {field: None}}, "default", dryRun="All")


@pytest.mark.parametrize("field", sorted(WHOLE))
def test_explain_says_what_each_field_is(kubectl: Kubernetes, field: str) -> None:
    said = kubectl("explain", f"slurmjob.spec.{field}")
    assert "<empty>" not in said.partition("FIELDS:")[0]


def test_explain_of_resources_teaches_sbatchs_options(kubectl: Kubernetes) -> None:
    said = kubectl("explain", "slurmjob.spec.resources")
    for option in ("--nodes", "--ntasks-per-node", "--mem", "--time", "2:00:00"):
        assert option in said


def test_a_slurm_clusters_audience_stays_what_it_was(kubectl: Kubernetes) -> None:
    spec = {"endpoint": "https://x:1", "caBundle": "eA==", "audience": "redbox.dev/x"}
    made = {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmCluster", "metadata": {"name": "x"}}
    assert "holdBack needs" in refusal(kubectl, {**made, "spec": {**spec, "holdBack": True}})
    assert "spec.audience" in refusal(kubectl, {**made, "spec": {**spec, "audience": "api"}})
    bad_name = {**made, "metadata": {"name": "x.y"}, "spec": spec}
    assert "a SlurmCluster's name" in refusal(kubectl, bad_name)
