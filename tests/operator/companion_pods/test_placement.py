"""Where a SlurmJob goes, and what it needs of a partition."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.job_parts import Resources
from redbox_clusters.node_labels import Limit
from redbox_operator.api.slurmjob_status import SlurmJobStatus
from redbox_operator.companion_pods.placement import cluster_of, held_back, partition_of, placed
from redbox_operator.companion_pods.resource_needs import needs_of, whole_needs_of
from tests.operator.factories import slurm_cluster, slurm_job, with_gateways


@pytest.mark.parametrize(
    ("spec", "clusters", "chosen"),
    [
        ({}, {"hpc1"}, "hpc1"),
        ({}, {"hpc1", "hpc2"}, None),
        ({}, set(), None),
        ({"cluster": "hpc2"}, {"hpc1"}, "hpc2"),
        ({"nodeSelector": {"redbox.dev/cluster": "hpc2"}}, {"hpc1", "hpc2"}, "hpc2"),
        ({"cluster": "hpc1", "nodeSelector": {"redbox.dev/cluster": "hpc2"}}, {"hpc2"}, "hpc1"),
    ],
)
def test_a_job_goes_to_the_cluster_that_it_names_or_to_the_only_one(
    spec: dict[str, Any], clusters: set[str], chosen: str | None
) -> None:
    assert cluster_of(slurm_job(**{"cluster": None, **spec}), clusters) == chosen


def test_a_cluster_once_chosen_stays_chosen_when_others_come() -> None:
    job = slurm_job(cluster=None).model_copy(update={"status": SlurmJobStatus(cluster="hpc1")})
    assert cluster_of(job, {"hpc1", "hpc2"}) == "hpc1"


def test_a_node_selector_may_name_the_partition_and_a_field_wins() -> None:
    selector = {"redbox.dev/partition": "long"}
    assert partition_of(slurm_job(nodeSelector=selector)) == "long"
    assert partition_of(slurm_job(partition="debug", nodeSelector=selector)) == "debug"


def test_a_companion_in_a_container_goes_where_its_author_says_and_anywhere_else() -> None:
    job = slurm_job(nodeSelector={"disk": "ssd", "redbox.dev/cluster": "hpc1"})
    assert placed(job, slurm_cluster()) == {"nodeSelector": {"disk": "ssd"}}
    assert placed(slurm_job(), slurm_cluster()) == {}


def test_a_companion_of_gateways_goes_to_one_where_its_job_fits() -> None:
    made = placed(slurm_job(partition="GPU_big", resources={"nodes": 2}), slurm_cluster(gateways=True))
    assert made["nodeSelector"] == {"redbox.dev/gateway.hpc1": "true"}
    terms = made["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = {item["key"] for term in terms["nodeSelectorTerms"] for item in term["matchExpressions"]}
    assert len(keys) == 1
    assert keys.pop().endswith(".hpc1.redbox.dev/max-nodes")


@pytest.mark.parametrize(
    ("partition", "selector"),
    [
        ("debug", {"redbox.dev/partition": "debug"}),
        ("GPU_big", {"redbox.dev/partition": "GPU_big"}),
        (None, {"redbox.dev/default-partition": "true"}),
    ],
)
def test_with_virtual_delivery_the_pod_goes_to_the_partitions_node(
    partition: str | None, selector: dict[str, str]
) -> None:
    made = placed(slurm_job(partition=partition), slurm_cluster(delivery="Virtual"))
    assert made["nodeSelector"] == {"redbox.dev/cluster": "hpc1", **selector}
    assert {taint["key"] for taint in made["tolerations"]} == {
        "redbox.dev/slurm",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert not any("tolerationSeconds" in taint for taint in made["tolerations"])


def test_only_a_cluster_that_holds_back_has_its_companions_request_what_the_job_takes() -> None:
    job = slurm_job(partition="debug", resources={"nodes": 2, "tasksPerNode": 4, "memPerNode": "1G"})
    assert held_back(job, slurm_cluster(delivery="Virtual")) == {}
    taken = held_back(job, slurm_cluster(delivery="Virtual", holdBack=True))
    prefix = "debug.hpc1.redbox.dev"
    assert taken == {f"{prefix}/nodes": "2", f"{prefix}/cpus": "8", f"{prefix}/mem": "2048"}


@pytest.mark.parametrize("gateways", [(), ("k1", "k2")])
def test_without_exactly_one_gateway_nothing_is_held_back_and_the_slurmcluster_says_so(
    gateways: tuple[str, ...],
) -> None:
    job = slurm_job(partition="debug")
    assert held_back(job, with_gateways("k1")) != {}
    cluster = with_gateways(*gateways)
    assert held_back(job, cluster) == {}
    (report,) = (item for item in cluster.status["conditions"] if item["type"] == "HoldsBack")
    assert (report["status"], report["reason"]) == ("False", "NotOneGateway")
    assert (", ".join(gateways) or "none") in report["message"]


@pytest.mark.parametrize(
    ("resources", "needs"),
    [
        ({}, {}),
        ({"nodes": 3}, {Limit.NODES: 3}),
        ({"tasksPerNode": 4, "cpusPerTask": 2}, {Limit.CPUS_PER_NODE: 8}),
        ({"nodes": 2, "tasks": 5}, {Limit.NODES: 2, Limit.CPUS_PER_NODE: 3}),
        ({"tasks": 5}, {}),
        ({"memPerNode": "4G"}, {Limit.MEM_MB_PER_NODE: 4096}),
        ({"memPerNode": "4000"}, {Limit.MEM_MB_PER_NODE: 4000}),
        ({"memPerNode": "1K"}, {Limit.MEM_MB_PER_NODE: 1}),
        ({"memPerNode": "0"}, {}),
        ({"memPerCpu": "1G", "cpusPerTask": 3}, {Limit.CPUS_PER_NODE: 3, Limit.MEM_MB_PER_NODE: 3072}),
        ({"gpusPerNode": "a100:2"}, {Limit.GPUS_PER_NODE: 2}),
        ({"time": "1-00:00:00"}, {Limit.TIME_S: 86400}),
        ({"time": "UNLIMITED"}, {}),
    ],
)
def test_what_a_job_needs_is_what_its_fields_say(resources: dict[str, Any], needs: dict[Limit, int]) -> None:
    assert needs_of(Resources.model_validate(resources)) == needs


def test_a_job_of_no_stated_size_takes_one_cpu_of_one_node() -> None:
    assert whole_needs_of(Resources()) == {"nodes": 1, "cpus": 1}
