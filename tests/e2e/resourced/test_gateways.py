"""Partitions on real nodes: what kubectl shows of a gateway is what sinfo and scontrol show."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Host
from redbox_bed.kube import kube_cluster
from redbox_clusters.node_labels import gateway_key, prefix
from tests.e2e.harness import partition_nodes
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.partition_nodes import (
    ADDED,
    OTHER,
    PARTITIONS,
    Nodes,
    Object,
    comes_to_be_as_in_slurm,
    published,
    publishing,
)
from tests.e2e.harness.redbox_server import RedboxServer
from tests.e2e.harness.resourced_process import CLUSTER, slurm_cluster
from tests.e2e.harness.virtual_delivery import InBed
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("bare", "resourced")]
kubernetes, server = partition_nodes.kubernetes, partition_nodes.server
login, nodes = partition_nodes.login, partition_nodes.nodes
GATEWAY = "k1"


@pytest.fixture(scope="module")
def resourced(
    bed: Bed, kubernetes: Kubernetes, server: RedboxServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InBed]:
    folder = tmp_path_factory.mktemp("resourced")
    with publishing(bed, kubernetes, server, folder) as process:
        yield process


@pytest.fixture
def gateway(nodes: Nodes) -> Iterator[str]:
    """A real node that an administrator makes a gateway, and no gateway again."""
    nodes.kubectl("label", "node", GATEWAY, f"{gateway_key(CLUSTER)}=true", "--overwrite")
    yield GATEWAY
    nodes.kubectl("label", "node", GATEWAY, f"{gateway_key(CLUSTER)}-", f"{gateway_key(OTHER)}-")
    eventually(lambda: not traces(nodes.get(GATEWAY)))
    left = nodes.get(GATEWAY)
    assert left is not None
    assert {"cpu", "memory", "pods"} <= left["status"]["capacity"].keys()


def traces(node: Object | None, cluster: str = CLUSTER) -> set[str]:
    """Keys on a real node that speak of the cluster's partitions."""
    assert node is not None
    status, metadata = node["status"], node["metadata"]
    maps = (status["capacity"], status["allocatable"], metadata["labels"], metadata["annotations"])
    return {key for keys in maps for key in keys if f".{cluster}.redbox.dev/" in key}


def published_on(nodes: Nodes, name: str, partition: str, cluster: str = CLUSTER) -> Object:
    """The node, as soon as it has the partition."""

    def look() -> Object | None:
        node = nodes.get(name)
        return node if node and published(node, partition, cluster)[0] else None

    return eventually(look)


def test_a_gateway_has_every_partition_and_a_kubelets_own_things_untouched(
    nodes: Nodes, gateway: str, login: Host
) -> None:
    plain = nodes.get("k2")
    for partition in PARTITIONS:
        comes_to_be_as_in_slurm(partial(published_on, nodes, gateway, partition), login, partition)
    node = nodes.get(gateway)
    assert node is not None
    assert plain is not None
    assert node["status"]["capacity"].items() >= plain["status"]["capacity"].items()
    assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
    assert "taints" not in node["spec"]
    assert not traces(nodes.get("k2"))


def test_for_gateways_alone_no_certificate_is_asked_for(nodes: Nodes, gateway: str, resourced: InBed) -> None:
    published_on(nodes, gateway, "debug")
    assert {one.name for one in resourced.folder.iterdir()} == {"kubeconfig", "resourced.log"}


def test_what_goes_from_slurm_goes_from_the_gateway(nodes: Nodes, gateway: str, login: Host) -> None:
    login.run("scontrol", "create", f"partition={ADDED}", "nodes=n1")
    comes_to_be_as_in_slurm(partial(published_on, nodes, gateway, ADDED), login, ADDED)
    login.run("scontrol", "delete", f"partition={ADDED}")
    head = prefix(ADDED, CLUSTER)
    eventually(lambda: not any(head in key for key in traces(nodes.get(gateway))))
    assert traces(nodes.get(gateway))


def test_two_clusters_on_one_node_do_not_fight(
    nodes: Nodes, gateway: str, server: RedboxServer, login: Host
) -> None:
    nodes.kubectl.apply(slurm_cluster(server, OTHER))
    nodes.kubectl("label", "node", gateway, f"{gateway_key(OTHER)}=true", "--overwrite")
    for cluster in (CLUSTER, OTHER):
        comes_to_be_as_in_slurm(
            partial(published_on, nodes, gateway, "debug", cluster), login, "debug", cluster
        )
    version = settled_version(nodes, gateway)
    login.run("scontrol", "update", "partition=debug", "maxtime=60")  # both have this to say
    eventually(lambda: settled_version(nodes, gateway) != version)
    for cluster in (CLUSTER, OTHER):
        comes_to_be_as_in_slurm(
            partial(published_on, nodes, gateway, "debug", cluster), login, "debug", cluster
        )
    nodes.kubectl("delete", "slurmcluster", OTHER)
    eventually(lambda: not traces(nodes.get(gateway), OTHER))
    comes_to_be_as_in_slurm(partial(published_on, nodes, gateway, "debug"), login, "debug")


def settled_version(nodes: Nodes, name: str) -> str:
    """Once the same is read twice: nobody goes on writing."""

    def look() -> str | None:
        first, second = version_of(nodes, name), version_of(nodes, name)
        return first if first == second else None

    return eventually(look)


def version_of(nodes: Nodes, name: str) -> str:
    node = nodes.get(name)
    assert node is not None
    return str(node["metadata"]["resourceVersion"])


def test_a_kubelet_that_is_started_again_and_a_node_made_anew_are_repaired(
    bed: Bed, nodes: Nodes, gateway: str, login: Host
) -> None:
    published_on(nodes, gateway, "debug")
    nodes.kubectl("delete", "node", gateway)
    bed.host(gateway).kill("kubelet")
    kube_cluster.up(bed, Progress.silent())
    eventually(lambda: nodes.get(gateway))
    nodes.kubectl("label", "node", gateway, f"{gateway_key(CLUSTER)}=true", "--overwrite")
    comes_to_be_as_in_slurm(partial(published_on, nodes, gateway, "debug"), login, "debug")
