"""Rights for pods are used only after both policies that limit them were seen to refuse."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_resourced import admission_policies
from redbox_resourced.nodes.manifest import KubeletAddress
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.pod_view import read_pod
from redbox_resourced.virtual_delivery import VirtualDelivery
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster

PODS_DENIED, VOLUMES_DENIED = (
    ApiRefused(422, f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: no")
    for name in ("redbox-pods", "redbox-volumes")
)
OWN = ResourcePath(kinds.POD, "redbox-resourced-x", "redbox-system")
P = ResourcePath(kinds.POD, "p", "alice")
TIMED: Object = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}
POD: Object = {
    "metadata": {"creationTimestamp": "2026-11-21T13:00:00Z"},
    "spec": {
        "nodeName": "hpc1.debug",
        "containers": [{"name": "main"}],
        "tolerations": [{"key": "redbox.dev/slurm", "operator": "Exists"}, TIMED],
    },
}


def delivery(api: FakeApiServer, *, may_run_pods: bool = True) -> VirtualDelivery:
    """Of a SlurmCluster with pods.enabled, with one pod on its node."""
    connection = SimpleNamespace(cluster=slurm_cluster(pods={"enabled": True}))
    clusters = SimpleNamespace(run_pods=True, of_node=lambda _: connection)
    made = VirtualDelivery(
        api.client,
        cast("ClusterRegistry", clusters),
        ServiceAccountName("redbox-system", "redbox-resourced"),
        KubeletAddress("127.0.0.1", 0),
        state_folder=Path("/nonexistent"),
        serving_folder=None,
        may_run_pods=may_run_pods,
    )
    api.put(OWN, {"metadata": {"labels": {}}})
    made._pods.informer.pods[P.namespace, P.name] = read_pod(api.put(P, POD))
    return made


async def probed(api: FakeApiServer, kind: str) -> None:
    """Until the policy has been tried twice more."""
    wanted = len([verb for verb, where in api.requests if where.kind.name == kind]) + 2
    while len([verb for verb, where in api.requests if where.kind.name == kind]) < wanted:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_tolerations_are_lifted_after_both_policies_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_policies, "RETRY_S", 0.0)
    api = FakeApiServer()
    served = delivery(api)
    before = api.objects[P]["spec"]["tolerations"]
    async with asyncio.timeout(60):
        task = asyncio.create_task(served._serve_pods())
        await probed(api, "Pod")
        api.fail(PODS_DENIED, verb="patch", name=OWN.name)
        await probed(api, "PersistentVolume")
        assert api.objects[P]["spec"]["tolerations"] == before
        assert "redbox-volumes" in served.why_no_pods()
        api.fail(VOLUMES_DENIED, verb="create", kind="PersistentVolume")
        while api.objects[P]["spec"]["tolerations"] == before:  # noqa: ASYNC110
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert served.why_no_pods() == ""
    assert "tolerationSeconds" not in api.objects[P]["spec"]["tolerations"][1]


async def test_a_red_box_that_is_too_old_for_pods_is_named_for_its_cluster_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(VirtualDelivery, "problem", "")
    monkeypatch.setattr(VirtualDelivery, "why_no_pods", lambda _: "")
    served = delivery(FakeApiServer())
    served._submitter.too_old.add("hpc1")
    old, other = served._pods_serving("hpc1"), served._pods_serving("hpc2")
    assert (old.reason, "upgrade red-box" in old.problem) == ("RedboxTooOld", True)
    assert (other.reason, other.problem) == ("", "")


async def test_without_the_charts_rights_pods_are_not_served() -> None:
    assert "resourced.pods.enabled" in delivery(FakeApiServer(), may_run_pods=False).why_no_pods()
