"""Partitions as virtual nodes: what kubectl shows of a node is what sinfo and scontrol show."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_clusters.node_labels import Limit, fit_terms, prefix, virtual_node
from tests.e2e.harness import partition_nodes
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.partition_nodes import (
    ADDED,
    PARTITIONS,
    Nodes,
    Object,
    amounts_in_slurm,
    assert_is_as_in_slurm,
    capacity,
    comes_to_be_as_in_slurm,
    condition,
    features_in_slurm,
    is_cordoned,
    limits_in_slurm,
    published,
    publishing,
    quantity,
    taint_keys,
)
from tests.e2e.harness.redbox_server import RedboxServer
from tests.e2e.harness.resourced_process import CLUSTER
from tests.e2e.harness.slurm_settings import configured
from tests.e2e.harness.virtual_delivery import PORT, InBed
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("bare", "resourced")]
kubernetes, server = partition_nodes.kubernetes, partition_nodes.server
login, nodes = partition_nodes.login, partition_nodes.nodes
POWER_SAVING = (
    "SuspendProgram=/bin/true",
    "ResumeProgram=/bin/true",
    "SuspendTime=86400",
    "SuspendTimeout=1",
    "ResumeTimeout=30",
)


@pytest.fixture(scope="module")
def resourced(
    bed: Bed, kubernetes: Kubernetes, server: RedboxServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InBed]:
    folder = tmp_path_factory.mktemp("resourced")
    with publishing(bed, kubernetes, server, folder, delivery="Virtual") as process:
        yield process


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_virtual_node_is_what_slurm_says_of_its_partition(
    nodes: Nodes, login: Host, partition: str
) -> None:
    node = nodes.ready(partition)
    assert_is_as_in_slurm(node, login, partition)
    amounts = amounts_in_slurm(login, partition)
    assert quantity(capacity(node)["cpu"]) == amounts["cpus"]
    assert quantity(capacity(node)["memory"]) == amounts["mem"] * 2**20
    assert capacity(node)["pods"] == "100k"
    metadata, spec = node["metadata"], node["spec"]
    assert metadata["labels"]["redbox.dev/partition"] == partition
    assert metadata["labels"]["redbox.dev/cluster"] == CLUSTER
    assert ("redbox.dev/default-partition" in metadata["labels"]) == (partition == "debug")
    assert metadata["labels"]["kubernetes.io/os"] == "linux"
    assert "kubernetes.io/arch" not in metadata["labels"]  # sinfo has no word for it
    assert metadata["labels"]["topology.kubernetes.io/zone"] == f"redbox-{CLUSTER}"
    assert spec["providerID"].startswith("redbox://")
    assert {"key": "redbox.dev/slurm", "effect": "NoSchedule"} in spec["taints"]
    assert not is_cordoned(node)
    assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == PORT


def test_virtual_nodes_are_ready_and_stay_so(nodes: Nodes) -> None:
    for partition in PARTITIONS:
        node = nodes.when(
            partition,
            lambda node: [taint["key"] for taint in node["spec"]["taints"]] == ["redbox.dev/slurm"],
        )
        assert condition(node, "Ready")["status"] == "True"
        assert condition(node, "RedBoxReachable")["status"] == "True"
        lease = eventually(functools.partial(nodes.lease, node["metadata"]["name"]))
        assert lease["spec"]["leaseDurationSeconds"] == 40
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("partition=debug", "state=DOWN"), "PartitionDown"),
        (("partition=debug", "state=DRAIN"), "PartitionDrain"),
        (("partition=debug", "state=INACTIVE"), "PartitionInactive"),
        (("node=n[1-3]", "state=drain", "reason=the roof leaks"), "Drained"),
        (("node=n[1-3]", "state=down", "reason=no power"), "Down"),
    ],
)
def test_a_partition_that_takes_no_jobs_is_cordoned_and_says_why(
    nodes: Nodes, login: Host, change: tuple[str, ...], reason: str
) -> None:
    before = published(nodes.ready("debug"), "debug")

    def is_changed(node: Object) -> bool:
        """Told again each time: Slurm takes back a node that registers right after it was said to be down."""
        login.run("scontrol", "update", *change)
        return is_cordoned(node)

    node = nodes.when("debug", is_changed)
    up = condition(node, "PartitionUp")
    assert (up["status"], up["reason"]) == ("False", reason)
    why = next((word.removeprefix("reason=") for word in change if word.startswith("reason=")), "state")
    assert why in up["message"]
    assert condition(node, "Ready")["status"] == "True"
    assert published(node, "debug") == before
    login.run("scontrol", "update", "partition=debug", "state=UP")
    login.run("scontrol", "update", "node=n[1-3]", "state=resume", check=False)
    back = nodes.when("debug", lambda node: not is_cordoned(node))
    assert condition(back, "PartitionUp")["reason"] == "Up"


def test_a_partition_whose_nodes_are_powered_down_stays_open_as_slurm_starts_them(
    bed: Bed, nodes: Nodes, login: Host
) -> None:
    nodes.ready("GPU_big")
    with configured(bed, *POWER_SAVING):
        login.run("scontrol", "update", "node=n3", "state=power_down")
        eventually(lambda: "POWERED_DOWN" in login.run("scontrol", "show", "node", "n3").stdout)
        look = functools.partial(nodes.when, "GPU_big", lambda node: not is_cordoned(node))
        comes_to_be_as_in_slurm(look, login, "GPU_big")
        eventually(lambda: condition(look(), "PartitionUp")["reason"] == "Up")
        login.run("scontrol", "update", "node=n3", "state=power_up")
        eventually(lambda: "POWER_UP" not in login.run("scontrol", "show", "node", "n3").stdout)
    eventually(lambda: is_in_service(bed, "n3"))


def is_in_service(bed: Bed, node: str) -> bool:
    """Slurm 22.05 drops what is left of power saving as it reads its settings, not always the first time.

    A request to power a node up that it had not begun by then stays for ever, and nothing runs on the node.
    """
    if "POWER" not in bed.host("login").run("scontrol", "show", "node", node).stdout:
        return True
    bed.host("ctl").run("scontrol", "reconfigure")
    return False


def test_the_old_keys_are_on_the_node_too(nodes: Nodes, login: Host) -> None:
    labels = nodes.ready("debug")["metadata"]["labels"]
    head = "wlm.sylabs.io/"
    old = {key.removeprefix(head): value for key, value in labels.items() if key.startswith(head)}
    features = dict.fromkeys(features_in_slurm(login, "debug"), "true")
    wall_time = limits_in_slurm(login, "debug")["max-time-s"]
    assert old == {"partition": "debug", "wall-time": wall_time, **features}


def test_partitions_beyond_the_number_of_nodes_allowed_are_told_of(resourced: InBed, nodes: Nodes) -> None:
    nodes.ready("debug")
    before = resourced.options
    resourced.stop()
    try:
        resourced.options = [*before, "--most-nodes=1"]
        resourced.start()
        about = f"involvedObject.name={CLUSTER},reason=TooManyPartitions"
        events = eventually(lambda: nodes.kubectl.list("events", "default", fields=about))
        assert any("2 of its partitions have no virtual node" in event["message"] for event in events)
    finally:
        resourced.stop()
        resourced.options = before
        resourced.start()
    for partition in PARTITIONS:
        nodes.ready(partition)


def test_a_partly_drained_partition_stays_open_and_says_what_is_away(nodes: Nodes, login: Host) -> None:
    nodes.ready("debug")
    login.run("scontrol", "update", "node=n2", "state=drain", "reason=a loose cable")
    node = nodes.when("debug", lambda node: condition(node, "PartitionUp").get("reason") == "PartlyAway")
    assert (
        "1 of 3 nodes start no jobs: 1 drained. Slurm's reason: a loose cable"
        in condition(node, "PartitionUp")["message"]
    )
    assert not is_cordoned(node)


def test_a_cordon_by_hand_is_left_alone(nodes: Nodes, login: Host) -> None:
    name = nodes.ready("debug")["metadata"]["name"]
    nodes.kubectl("cordon", name)
    login.run("scontrol", "update", "partition=debug", "state=DRAIN")
    nodes.when("debug", lambda node: condition(node, "PartitionUp")["status"] == "False")
    login.run("scontrol", "update", "partition=debug", "state=UP")
    node = nodes.when("debug", lambda node: condition(node, "PartitionUp")["status"] == "True")
    assert is_cordoned(node)
    nodes.kubectl("uncordon", name)
    nodes.when("debug", lambda node: not is_cordoned(node))


def test_partitions_that_come_change_and_go_are_followed(nodes: Nodes, login: Host) -> None:
    nodes.ready("debug")
    login.run("scontrol", "create", f"partition={ADDED}", "nodes=n1", "maxtime=2-00:00:00", "maxnodes=1")
    assert_is_as_in_slurm(nodes.ready(ADDED), login, ADDED)
    login.run("scontrol", "update", f"partition={ADDED}", "nodes=n1,n2", "maxtime=UNLIMITED", "maxnodes=2")
    resized = nodes.when(ADDED, lambda node: published(node, ADDED)[0]["nodes"] == 2)
    assert_is_as_in_slurm(resized, login, ADDED)
    assert "max-time-s" not in published(resized, ADDED)[1]
    login.run("scontrol", "delete", f"partition={ADDED}")
    gone = nodes.when(ADDED, is_cordoned)
    assert condition(gone, "PartitionUp")["reason"] == "Gone"
    eventually(lambda: nodes.of(ADDED) is None)
    assert {virtual_node(name, CLUSTER) for name in PARTITIONS} == nodes.names()


def test_a_partition_without_nodes_is_published_as_having_none(nodes: Nodes, login: Host) -> None:
    nodes.ready("debug")
    login.run("scontrol", "create", f"partition={ADDED}")
    node = nodes.ready(ADDED)
    assert_is_as_in_slurm(node, login, ADDED)
    assert published(node, ADDED)[0]["nodes"] == 0
    assert is_cordoned(node)
    assert condition(node, "PartitionUp")["reason"] == "NoNodes"


# ---------------------------------------------------------------------------------------------- faults


def test_a_deleted_node_comes_back_and_is_ready(nodes: Nodes) -> None:
    before = nodes.ready("debug")["metadata"]
    nodes.kubectl("delete", "node", before["name"])
    after = nodes.when("debug", lambda node: node["metadata"]["uid"] != before["uid"])
    eventually(lambda: condition(nodes.ready("debug"), "Ready").get("status") == "True")
    lease = eventually(lambda: nodes.lease(before["name"]))
    eventually(
        lambda: (
            (nodes.lease(before["name"]) or lease)["metadata"]["ownerReferences"][0]["uid"]
            == after["metadata"]["uid"]
        )
    )


def test_labels_and_capacity_that_a_hand_took_away_come_back(nodes: Nodes, login: Host) -> None:
    name = nodes.ready("debug")["metadata"]["name"]
    key = f"{prefix('debug', CLUSTER)}/max-time-s"
    nodes.kubectl("label", "node", name, f"{key}-")
    nodes.kubectl("taint", "node", name, "redbox.dev/slurm:NoSchedule-")
    nodes.kubectl(
        *("patch", "node", name, "--subresource=status", "--type=merge"),
        '--patch={"status": {"capacity": {"cpu": "1"}}}',
    )
    nodes.when("debug", lambda node: key in node["metadata"]["labels"] and capacity(node)["cpu"] == "12")
    node = nodes.when("debug", lambda node: "redbox.dev/slurm" in taint_keys(node))
    assert_is_as_in_slurm(node, login, "debug")


def test_the_labels_by_which_a_node_is_found_come_back(nodes: Nodes) -> None:
    before = nodes.ready("debug")["metadata"]
    nodes.kubectl("annotate", "node", before["name"], "redbox.dev/partition-")
    changed = ("redbox.dev/virtual-", "redbox.dev/cluster=another", "redbox.dev/partition-")
    nodes.kubectl("label", "node", before["name"], *changed, "--overwrite")

    def is_as_before(node: Object) -> bool:
        now = node["metadata"]
        same = (now[name] == before[name] for name in ("uid", "labels", "annotations"))
        return all(same) and not is_cordoned(node)

    nodes.when("debug", is_as_before)


def test_a_red_box_that_is_away_taints_its_nodes_and_takes_nothing_else(
    nodes: Nodes, server: RedboxServer, login: Host
) -> None:
    nodes.ready("debug")
    server.kill()
    try:
        nodes.when("debug", lambda node: "redbox.dev/unreachable" in taint_keys(node))
        node = nodes.when("debug", lambda node: condition(node, "RedBoxReachable")["status"] == "False")
        assert condition(node, "RedBoxReachable")["reason"] == "Unreachable"
        assert condition(node, "Ready")["status"] == "True"
        assert not [taint for taint in node["spec"]["taints"] if taint["effect"] == "NoExecute"]
        assert_is_as_in_slurm(node, login, "debug")
    finally:
        server.start()
    nodes.when("debug", lambda node: "redbox.dev/unreachable" not in taint_keys(node))
    nodes.when("debug", lambda node: condition(node, "RedBoxReachable")["status"] == "True")


def test_resourced_killed_and_back_finds_its_nodes_as_they_were(
    resourced: InBed, nodes: Nodes, login: Host
) -> None:
    before = nodes.ready("debug")
    resourced.kill()
    login.run("scontrol", "update", "partition=debug", "state=DOWN")
    resourced.start()
    after = nodes.when("debug", is_cordoned)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert published(after, "debug") == published(before, "debug")
    assert condition(after, "Ready") == condition(before, "Ready")


def test_resourced_that_begins_while_red_box_is_away_takes_nothing_back(
    resourced: InBed, nodes: Nodes, server: RedboxServer
) -> None:
    before = nodes.ready("GPU_big")
    resourced.kill()
    server.kill()
    resourced.start()
    node = nodes.when("GPU_big", lambda node: condition(node, "RedBoxReachable")["status"] == "False")
    assert published(node, "GPU_big") == published(before, "GPU_big")
    assert not is_cordoned(node)
    server.start()
    nodes.when("GPU_big", lambda node: condition(node, "RedBoxReachable")["status"] == "True")


def test_a_node_of_somebody_else_that_has_the_name_is_left_alone(
    nodes: Nodes, login: Host, resourced: InBed
) -> None:
    name = virtual_node(ADDED, CLUSTER)
    foreign = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"mine": "yes"}}}
    eventually(lambda: nodes.get(name) is None)  # an earlier test's is gone
    nodes.kubectl("create", "--filename=-", stdin=json.dumps(foreign))
    try:
        login.run("scontrol", "create", f"partition={ADDED}", "nodes=n1")
        eventually(lambda: "exists that is not ours" in resourced.log)
        node = nodes.get(name)
        assert node is not None
        assert "redbox.dev/virtual" not in node["metadata"]["labels"]
        assert "redbox.dev/slurm" not in taint_keys(node)
    finally:
        nodes.kubectl("delete", "node", name)
    assert_is_as_in_slurm(nodes.ready(ADDED), login, ADDED)


def test_a_job_that_fits_nowhere_stays_pending_with_a_reason(nodes: Nodes) -> None:
    nodes.ready("debug")
    terms = fit_terms({Limit.TIME_S: 1801}, "debug", CLUSTER)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "too-long", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "none"}],
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"redbox.dev/cluster": CLUSTER, "redbox.dev/partition": "debug"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
                }
            },
        },
    }
    nodes.kubectl("create", "--filename=-", stdin=json.dumps(pod))
    try:
        scheduled = eventually(lambda: condition(nodes.pod("too-long"), "PodScheduled"))
        assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
        assert "didn't match Pod's node affinity/selector" in scheduled["message"]
    finally:
        nodes.kubectl("delete", "pod", "too-long", "--now")
