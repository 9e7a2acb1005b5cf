"""What the real API server takes of the kinds of hosted Slurm, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubectl_slurm.slinky.conversion import convert
from kubectl_slurm.slinky.documents import read_documents
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_hosting.api.crds import hosting_crds
from redbox_hosting.build.pods.worker import WorkerPlan, worker_pod
from tests.e2e.harness.kubernetes import Kubernetes
from tests.hosting.factories import cell, node_set

pytestmark = pytest.mark.nightly
API = "slurm.redbox.dev/v1alpha1"
SLINKY = Path(__file__).parents[2] / "cli/slinky"
REF = {"name": "slurm"}
KEY = {"name": "site", "key": "munge.key"}
LIMITS = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
SPECS: dict[str, dict[str, Any]] = {
    "Controller": {"clusterName": "lab", "accountingRef": {}, "redbox": {"maxNodes": 10}},
    "NodeSet": {"controllerRef": REF, "slurmd": LIMITS},
    "LoginSet": {"controllerRef": REF, "sssdConfRef": {"name": "sssd", "key": "sssd.conf"}},
    "RestApi": {"controllerRef": REF, "service": {"spec": {"type": "NodePort"}, "nodePort": 30000}},
    "Accounting": {"redbox": {"database": {"enabled": True}}},
    "Token": {"username": "alice", "lifetime": "1h"},
}


@pytest.fixture(scope="module")
def kubectl(bed: Bed) -> Iterator[Kubernetes]:
    kubectl = Kubernetes(bed)
    crds = hosting_crds()
    kubectl.apply(yaml.safe_dump_all(crds))
    kubectl("wait", "--for=condition=Established", *(f"crd/{crd['metadata']['name']}" for crd in crds))
    yield kubectl
    for crd in crds:
        kubectl.delete("customresourcedefinition", crd["metadata"]["name"], wait=False)


def made(kind: str, name: str = "a", **fields: Any) -> dict[str, Any]:
    spec = {key: value for key, value in {**SPECS[kind], **fields}.items() if value is not None}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def has_all(whole: object, part: object) -> bool:
    """Whether every value of `part` is in `whole`, which may have defaults besides."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and has_all(whole[key], value) for key, value in part.items())
    return whole == part


@pytest.mark.parametrize("kind", SPECS)
def test_the_least_of_each_kind_is_taken(kubectl: Kubernetes, kind: str) -> None:
    assert has_all(kubectl.create(made(kind), dryRun="All")["spec"], SPECS[kind])


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (
            "Controller",
            {"external": True, "externalConfig": {"host": "a", "port": 6817}},
            "an external Controller needs slurmKeyRef and jwtKeyRef",
        ),
        (
            "Controller",
            {"redbox": {"munge": {"keyRef": KEY}}},
            "redbox.munge is for an external Controller, instead of slurmKeyRef",
        ),
        (
            "Controller",
            {"redbox": {"outsideAddresses": ["everywhere"]}},
            "spec.redbox.outsideAddresses[0]",
        ),
        ("Controller", {"external": True}, "set external to true and externalConfig together"),
        ("Controller", {"clusterName": "A b"}, "spec.clusterName"),
        (
            "Controller",
            {"redbox": {"partitions": [{"name": "a", "default": True}, {"name": "b", "default": True}]}},
            "only one of redbox.partitions can be the default",
        ),
        ("Controller", {"redbox": {"partitions": [{"name": "a b"}]}}, "spec.redbox.partitions[0].name"),
        ("Controller", {"redbox": {"users": {}}}, "set exactly one of configMapRef, sssdConfRef"),
        ("Controller", {"service": {"spec": {"externalIPs": ["10.0.0.1"]}}}, "unknown field"),
        ("NodeSet", {"replicas": 1, "redbox": {"onDemand": {"max": 2}}}, "leave replicas out"),
        ("NodeSet", {"redbox": {"onDemand": {"min": 3, "max": 2}}}, "redbox.onDemand.min is at most"),
        ("NodeSet", {"redbox": {"shmSize": "lots"}}, "spec.redbox.shmSize"),
        ("NodeSet", {"controllerRef": None}, "spec.controllerRef: Required value"),
        ("Accounting", {"redbox": None}, "set exactly one of storageConfig, redbox.database.enabled"),
        ("Token", {"username": "a\nb"}, "spec.username"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(
    kubectl: Kubernetes, kind: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(BedError) as refused:
        kubectl.create(made(kind, **fields), dryRun="All")
    assert words in str(refused.value)


def test_slinkys_manifests_are_taken_once_they_are_converted(kubectl: Kubernetes) -> None:
    """By server-side apply, of which nothing is stored: each schema and each rule in CEL is asked."""
    conversion = convert(
        each for file in sorted(SLINKY.glob("*.yaml")) for each in read_documents(*text_of(file))
    )
    objects = [each for each in conversion.documents if isinstance(each, dict) and each["apiVersion"] == API]
    assert len(objects) == conversion.converted >= 39
    namespaces = sorted({each["metadata"]["namespace"] for each in objects})
    for name in namespaces:
        kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    try:
        applied = ("apply", "--server-side", "--dry-run=server", "--filename=-")
        lines = kubectl(*applied, stdin=yaml.safe_dump_all(objects)).splitlines()
        assert len([line for line in lines if line.endswith("serverside-applied (server dry run)")]) == len(
            objects
        )
    finally:
        kubectl.delete("namespace", *namespaces, wait=False)


def text_of(file: Path) -> tuple[str, str]:
    return file.read_text(), file.name


@pytest.mark.parametrize("name", ["w-0", "w" * 41])
def test_names_that_would_meet_others_are_refused(kubectl: Kubernetes, name: str) -> None:
    with pytest.raises(BedError, match="name"):
        kubectl.create(made("NodeSet", name), dryRun="All")


def test_what_must_not_change_does_not_and_replicas_are_scaled(kubectl: Kubernetes) -> None:
    with kubectl.applied("default", made("Controller", "slurm"), made("NodeSet", "w")):
        for kind, name, change, words in (
            ("Controller", "slurm", {"clusterName": "other"}, "clusterName is immutable"),
            ("Controller", "slurm", {"clusterName": None}, "clusterName is immutable"),
            ("Controller", "slurm", {"redbox": {"maxNodes": 9}}, "redbox.maxNodes only grows"),
            ("NodeSet", "w", {"controllerRef": {"name": "other"}}, "controllerRef is immutable"),
        ):
            with pytest.raises(BedError, match=words):
                kubectl.patch(f"{kind.lower()}s.slurm.redbox.dev", name, {"spec": change}, "default")
        assert "replicas" not in kubectl.get("nodesets.slurm.redbox.dev", "w", "default")["spec"]
        kubectl("-ndefault", "scale", "nss/w", "--replicas=3")
        assert kubectl.get("nodesets.slurm.redbox.dev", "w", "default")["spec"]["replicas"] == 3


def test_a_workers_pod_passes_baseline_and_more_than_that_does_not(kubectl: Kubernetes) -> None:
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hosted", "labels": level}}
    kubectl.apply(yaml.safe_dump(namespace))
    try:
        pod = worker_pod(cell(), WorkerPlan(node_set(), 0, "rev"))
        pod["metadata"] |= {"namespace": "hosted", "ownerReferences": []}
        account = {"name": pod["spec"]["serviceAccountName"], "namespace": "hosted"}
        kubectl.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        kubectl.create(pod, dryRun="All")
        privileged = cell({"redbox": {"profile": "Privileged"}})
        refused = worker_pod(privileged, WorkerPlan(node_set(), 0, "rev"))
        refused["metadata"] |= {"namespace": "hosted", "ownerReferences": []}
        with pytest.raises(BedError, match="privileged"):
            kubectl.create(refused, dryRun="All")
    finally:
        kubectl.delete("namespace", "hosted", wait=False)
