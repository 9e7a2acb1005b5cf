"""Nodes as kubectl shows them, partitions as sinfo and scontrol do, and that both say the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_clusters.node_labels import prefix, virtual_node
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.redbox_server import RedboxServer
from tests.e2e.harness.resourced_process import (
    CLUSTER,
    install,
    redbox_of,
    remove_all,
    slurm_cluster,
    virtual_nodes,
)
from tests.e2e.harness.virtual_delivery import InBed
from tests.e2e.harness.waiting import eventually

OTHER = "hpc2"
ADDED = "Added_one"
GONE_AFTER_S = 2
SLURM_IS_ASKED_AT_ONCE = {"partitions_every_s": 0.5, "reads_per_minute": 600}
"""What changes in Slurm is told within a second, so that tests need not wait for each change."""
PARTITIONS = ("debug", "long", "GPU_big")
Object = dict[str, Any]


@contextmanager
def publishing(
    bed: Bed, kubernetes: Kubernetes, server: RedboxServer, folder: Path, **spec: str
) -> Iterator[InBed]:
    """resourced, with a SlurmCluster and the old keys; what is gone from Slurm is gone after two seconds."""
    remove_all(kubernetes, [CLUSTER, OTHER])
    kubernetes.apply(slurm_cluster(server, **spec))
    options = [f"--gone-after={GONE_AFTER_S}", "--old-keys"]
    process = InBed(bed, folder, options, has_virtual_nodes=spec.get("delivery") == "Virtual")
    process.start()
    try:
        yield process
    finally:
        process.stop()
        remove_all(kubernetes, [CLUSTER, OTHER])


def as_it_was(login: Host) -> None:
    """Slurm's partitions and nodes after a test that changed them."""
    login.run("scontrol", "update", "partition=debug", "state=UP", "maxtime=30", "nodes=n1,n2,n3")
    login.run("scontrol", "update", "node=n[1-3]", "state=resume", check=False)
    login.run("scontrol", "delete", f"partition={ADDED}", check=False)


class Nodes:
    """The Nodes of Kubernetes, as its administrator sees them."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubectl = kubernetes

    def get(self, name: str) -> Object | None:
        return self.kubectl.get("node", name) or None

    def pod(self, name: str) -> Object:
        return self.kubectl.get("pod", name, "default")

    def lease(self, name: str) -> Object | None:
        return self.kubectl.get("lease", name, "kube-node-lease") or None

    def of(self, partition: str, cluster: str = CLUSTER) -> Object | None:
        return self.get(virtual_node(partition, cluster))

    def names(self) -> set[str]:
        return set(virtual_nodes(self.kubectl))

    def when(self, partition: str, holds: Callable[[Object], object]) -> Object:
        """The partition's virtual node, as soon as it is so."""

        def look() -> Object | None:
            node = self.of(partition)
            return node if node is not None and holds(node) else None

        return eventually(look)

    def ready(self, partition: str) -> Object:
        return self.when(partition, lambda node: condition(node, "PartitionUp") and capacity(node))


def condition(node: Object, kind: str) -> Object:
    return next((one for one in node["status"].get("conditions", []) if one["type"] == kind), {})


def capacity(node: Object) -> Object:
    found: Object = node["status"].get("capacity", {})
    return found


def taint_keys(node: Object) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", [])}


def is_cordoned(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable"))


def quantity(text: str) -> int:
    number, suffix = re.fullmatch(r"(\d+)([kMGi]*)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"": 1, "k": 1000, "M": 10**6, "Mi": 2**20, "Gi": 2**30}[suffix]


def scontrol(login: Host, partition: str) -> dict[str, str]:
    """What Slurm itself says of a partition."""
    words = login.run("scontrol", "show", "partition", partition, "--oneliner").stdout.split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def amounts_in_slurm(login: Host, partition: str) -> dict[str, int]:
    """From sinfo, node by node."""
    lines = login.run("sinfo", "-h", "-N", "-p", partition, "-O", "NodeList:20,CPUs:10,Memory:10,Gres:40")
    rows = [line.split() for line in lines.stdout.splitlines() if line.strip()]
    gpus = sum(int(row[3].rsplit(":", 1)[1].split("(")[0]) for row in rows if row[3].startswith("gpu:tesla"))
    return {
        "nodes": len(rows),
        "cpus": sum(int(row[1]) for row in rows),
        "mem": sum(int(row[2]) for row in rows),
        "gpus": gpus,
        **({"gpu.tesla": gpus} if gpus else {}),
    }


def features_in_slurm(login: Host, partition: str) -> set[str]:
    lines = login.run("sinfo", "-h", "-p", partition, "-o", "%b").stdout.split()
    return {feature for line in lines for feature in line.split(",") if feature != "(null)"}


def limits_in_slurm(login: Host, partition: str) -> dict[str, str]:
    """The numbers of labels, from scontrol; no number where there is no limit."""
    said = scontrol(login, partition)
    limits = {
        "max-nodes": said["MaxNodes"],
        "max-cpus-per-node": said["MaxCPUsPerNode"],
        "max-mem-mb-per-node": said.get("MaxMemPerNode", "UNLIMITED"),
        "max-time-s": seconds(said["MaxTime"]),
    }
    return {name: value for name, value in limits.items() if value != "UNLIMITED"}


def seconds(time: str) -> str:
    if time == "UNLIMITED":
        return time
    days, _, clock = time.rpartition("-")
    hours, minutes, rest = map(int, clock.split(":"))
    return str(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + rest)


def published(node: Object, partition: str, cluster: str = CLUSTER) -> tuple[dict[str, int], dict[str, str]]:
    """Amounts and labels that the node has of the partition, without their prefix."""
    head = f"{prefix(partition, cluster)}/"
    amounts = {
        key.removeprefix(head): quantity(value) for key, value in capacity(node).items() if head in key
    }
    labels = {key.removeprefix(head): v for key, v in node["metadata"]["labels"].items() if head in key}
    return amounts, labels


def comes_to_be_as_in_slurm(
    look: Callable[[], Object], login: Host, partition: str, cluster: str = CLUSTER
) -> None:
    """What Slurm says is on the node within seconds: red-box may answer with what it was told just before."""

    def same() -> bool:
        try:
            assert_is_as_in_slurm(look(), login, partition, cluster)
        except AssertionError:
            return False
        return True

    eventually(same)


def assert_is_as_in_slurm(node: Object, login: Host, partition: str, cluster: str = CLUSTER) -> None:
    amounts, labels = published(node, partition, cluster)
    assert amounts == amounts_in_slurm(login, partition)
    features = {f"feature.{name}": "true" for name in features_in_slurm(login, partition)}
    gpus = {"max-gpus-per-node": labels["max-gpus-per-node"]} if amounts["nodes"] else {}
    expected = {"partition": partition, **limits_in_slurm(login, partition), **features, **gpus}
    assert labels == expected
    assert node["metadata"]["annotations"][f"{prefix(partition, cluster)}/partition"] == partition
    assert (
        node["status"]["allocatable"].items()
        >= {key: value for key, value in capacity(node).items() if prefix(partition, cluster) in key}.items()
    )


# --------------------------------------------------------------- fixtures of those who look at nodes


@pytest.fixture(scope="module")
def kubernetes(bed: Bed) -> Kubernetes:
    kubernetes = Kubernetes(bed)
    install(bed, kubernetes)
    return kubernetes


@pytest.fixture(scope="module")
def server(bed: Bed, kubernetes: Kubernetes) -> Iterator[RedboxServer]:
    with redbox_of(bed, kubernetes, SLURM_IS_ASKED_AT_ONCE) as server:
        yield server


@pytest.fixture
def login(bed: Bed) -> Iterator[Host]:
    """Where an administrator of Slurm changes things; all is as it was afterwards."""
    host = bed.host("login")
    yield host
    as_it_was(host)


@pytest.fixture
def nodes(kubernetes: Kubernetes) -> Nodes:
    return Nodes(kubernetes)
