"""Which pods run as jobs of a SlurmCluster, as its objects show them."""

from __future__ import annotations

from redbox_clusters.virtual_pods import submitted_pods, virtual_nodes_of
from tests.clusters.virtual_pods import has_node, has_pod
from tests.kube.fakes import FakeApiServer

COMPANION = {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmJob", "name": "cow", "controller": True}


async def test_those_that_were_submitted_and_have_not_ended_are_named_with_their_jobs() -> None:
    api = FakeApiServer()
    has_pod(api, "runs")
    has_pod(api, "queued", phase="Pending")
    has_pod(api, "over", phase="Failed")
    has_pod(api, "waits", submitted="False")
    has_pod(api, "elsewhere", node="hpc2.debug")
    has_pod(api, "companion", metadata={"ownerReferences": [COMPANION]})
    pods = await submitted_pods(api.client, ["hpc1.debug"])
    assert sorted(map(str, pods)) == [
        "farm/queued: Slurm job 7 of alice",
        "farm/runs: Slurm job 7 of alice",
    ]


async def test_the_nodes_of_a_cluster_are_those_of_its_label_and_its_name() -> None:
    api = FakeApiServer()
    has_node(api, "hpc1.debug", "hpc1")
    has_node(api, "hpc2.debug", "hpc2")
    has_node(api, "kubelet-of-somebody", "hpc1")
    assert await virtual_nodes_of(api.client, "hpc1") == ["hpc1.debug"]
