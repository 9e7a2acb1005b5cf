"""Which pods run on a virtual node: those whose author names it, and no pod of a machine."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_resourced.pods.pod_view import BoundPodKind, read_pod
from redbox_resourced.pods.selection import TimedToleration, names_virtual_node, timed_tolerations

BLANKET = {"operator": "Exists"}
NAMES_TAINT = {"key": "redbox.dev/slurm", "operator": "Exists", "effect": "NoSchedule"}


def pod(metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    identity = {"namespace": "alice", "name": "p", "uid": "u", "creationTimestamp": "2026-11-21T13:00:00Z"}
    containers = [{"name": "main", "image": "busybox"}]
    return {
        "metadata": identity | (metadata or {}),
        "spec": {"nodeName": "hpc1.debug", "containers": containers, **spec},
    }


def required(key: str, operator: str, *values: str, fields: bool = False) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, "values": [*values]}
    term = {"matchFields" if fields else "matchExpressions": [expression]}
    chosen = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}}


def preferred(key: str) -> dict[str, Any]:
    preference = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    chosen = [{"weight": 1, "preference": preference}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": chosen}}


def owned_by(kind: str, version: str = "apps/v1") -> dict[str, Any]:
    owner = {"apiVersion": version, "kind": kind, "name": "o", "uid": "v", "controller": True}
    return {"ownerReferences": [owner]}


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [NAMES_TAINT]},
        {"tolerations": [{"key": "redbox.dev/slurm", "operator": "Exists"}]},
        {"tolerations": [BLANKET], "nodeSelector": {"redbox.dev/partition": "debug"}},
        {"tolerations": [BLANKET], "nodeSelector": {"debug.hpc1.redbox.dev/feature.a100": "true"}},
        {"tolerations": [BLANKET], "nodeSelector": {"kubernetes.io/hostname": "hpc1.debug"}},
        {"tolerations": [BLANKET], "affinity": required("redbox.dev/virtual", "In", "true")},
        {"tolerations": [BLANKET], "affinity": required("debug.hpc1.redbox.dev/max-nodes", "Gt", "1")},
        {"tolerations": [BLANKET], "affinity": required("metadata.name", "In", "hpc1.debug", fields=True)},
        {"tolerations": [BLANKET], "affinity": preferred("redbox.dev/virtual")},
    ],
)
def test_a_pod_whose_author_names_virtual_nodes_runs(spec: dict[str, Any]) -> None:
    assert names_virtual_node(pod(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"tolerations": [BLANKET]},
        {"tolerations": [{"key": "redbox.dev/unreachable", "operator": "Exists"}]},
        {"tolerations": [BLANKET], "nodeSelector": {"kubernetes.io/os": "linux"}},
        {"tolerations": [BLANKET], "nodeSelector": {"kubernetes.io/hostname": "hpc1.other"}},
        {"tolerations": [BLANKET], "nodeSelector": {"notredbox.dev/partition": "debug"}},
        {"tolerations": [BLANKET], "nodeSelector": {"redbox.dev": "debug"}},
        {"tolerations": [BLANKET], "affinity": required("redbox.dev/virtual", "DoesNotExist")},
        {"tolerations": [BLANKET], "affinity": required("redbox.dev/partition", "NotIn", "gpu")},
        {"tolerations": [BLANKET], "affinity": required("metadata.name", "In", "worker-1", fields=True)},
        {"tolerations": None, "nodeSelector": None, "affinity": {"nodeAffinity": None}},
    ],
)
def test_a_pod_that_only_tolerates_everything_does_not_run(spec: dict[str, Any]) -> None:
    assert not names_virtual_node(pod(**spec))


@pytest.mark.parametrize(
    "metadata",
    [
        owned_by("DaemonSet"),
        owned_by("Node", "v1"),
        {"annotations": {"kubernetes.io/config.mirror": "digest"}},
    ],
)
def test_a_pod_of_a_machine_never_runs_whatever_it_names(metadata: dict[str, Any]) -> None:
    assert not names_virtual_node(pod(metadata, tolerations=[NAMES_TAINT]))


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({}, BoundPodKind.POD),
        (owned_by("Job", "batch/v1"), BoundPodKind.POD),
        (owned_by("ReplicaSet"), BoundPodKind.POD),
        (owned_by("SlurmJob", "redbox.dev/v1alpha1"), BoundPodKind.JOB),
        (owned_by("DaemonSet"), BoundPodKind.DAEMON),
        (owned_by("Node", "v1"), BoundPodKind.FOREIGN),
    ],
)
def test_a_pod_that_names_the_node_is_what_its_controller_says(
    metadata: dict[str, Any], kind: BoundPodKind
) -> None:
    assert read_pod(pod(metadata, tolerations=[NAMES_TAINT])).role is kind


def test_a_pod_that_names_no_virtual_node_is_foreign() -> None:
    assert read_pod(pod(owned_by("Job", "batch/v1"), tolerations=[BLANKET])).role is BoundPodKind.FOREIGN


def test_only_tolerations_of_a_lapsed_lease_are_timed() -> None:
    unready, away = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
    tolerations = [
        NAMES_TAINT,
        {"key": unready, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "example.org/maintenance", "operator": "Exists", "tolerationSeconds": 60},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        {"key": unready, "operator": "Exists", "effect": "NoExecute"},
        {"key": away, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
    ]
    found = timed_tolerations({"tolerations": tolerations})
    assert found == (TimedToleration(1, unready, 300), TimedToleration(5, away, 0))
