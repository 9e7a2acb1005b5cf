"""What the condition PodsReady says, and that it is written once for each change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from redbox_clusters.slurm_cluster import SLURM_CLUSTERS, PodsSpec, SlurmCluster
from redbox_kube.api.objects import ApiUnreachable, Object, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods_condition import PodGrants, PodsCondition, readiness_of
from redbox_resourced.virtual_delivery import PodsServing
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster

ALL = PodGrants(enabled=True, namespaces=("alice",), api_token_namespaces=("alice",))
SERVED = PodsServing()
TOKENS = {"apiTokens": True, "apiServer": "https://k8s.example.org"}
WHERE = ResourcePath(SLURM_CLUSTERS, "hpc1")


@pytest.mark.parametrize(
    ("spec", "grants", "serving", "reason", "said"),
    [
        ({}, ALL, SERVED, "Served", "alice"),
        (TOKENS, ALL, SERVED, "Served", "alice"),
        ({}, ALL, PodsServing("NotServed", "the port is taken"), "NotServed", "the port is taken"),
        ({}, PodGrants(), PodsServing("PolicyMissing", "not in force"), "PolicyMissing", "not in force"),
        ({"routed": True}, ALL, PodsServing(services="not in force"), "ServicesNotServed", "not in force"),
        ({}, ALL, PodsServing(services="not in force"), "Served", "alice"),
        ({}, PodGrants(enabled=True), SERVED, "Served", "resourced.pods.namespaces"),
        (TOKENS, PodGrants(enabled=True, namespaces=("a",)), SERVED, "NoTokenNamespaces", "apiTokenNamesp"),
    ],
)
def test_the_first_thing_that_is_missing_is_named(
    spec: dict[str, Any], grants: PodGrants, serving: PodsServing, reason: str, said: str
) -> None:
    readiness = readiness_of(PodsSpec.model_validate({"enabled": True, **spec}), grants, serving)
    assert (readiness.reason, readiness.holds) == (reason, reason in {"Served", "ServicesNotServed"})
    assert said in readiness.message


class Stand:
    """One SlurmCluster at an API server, and the writer of its condition."""

    def __init__(self, **pods: Any) -> None:
        self.api = FakeApiServer()
        self.serving: PodsServing | None = SERVED
        stored = slurm_cluster(pods=pods).model_dump(
            mode="json", by_alias=True, exclude={"spec": {"ca_bundle"}}
        )
        stored["spec"]["caBundle"] = ""
        self.api.put(WHERE, stored)
        registry = SimpleNamespace(followed={})
        self._registry = registry
        clusters = cast("ClusterRegistry", registry)
        self.writer = PodsCondition(self.api.client, clusters, ALL, lambda _: self.serving)

    async def look(self, **spec: Any) -> Object | None:
        """One pass over the SlurmCluster as it is stored; returns the condition after it."""
        stored = self.api.objects[WHERE]
        cluster = SlurmCluster.model_validate({**stored, "spec": {**stored["spec"], **spec}})
        self._registry.followed = {"hpc1": SimpleNamespace(cluster=cluster)}
        await self.writer.write_all()
        conditions: list[Object] = self.api.objects[WHERE].get("status", {}).get("conditions", [])
        return conditions[0] if conditions else None


async def test_it_is_written_once_and_again_only_when_it_changes() -> None:
    stand = Stand(enabled=True)
    served = await stand.look()
    assert served is not None
    assert (served["status"], served["reason"]) == ("True", "Served")
    assert await stand.look() == served
    assert stand.api.asked == ["apply SlurmCluster"]
    stand.serving = PodsServing("NotServed", "the port is taken")
    refused = await stand.look()
    assert refused is not None
    assert (refused["status"], refused["message"]) == ("False", "the port is taken")


async def test_another_reason_does_not_change_since_when_it_holds() -> None:
    stand = Stand(enabled=True)
    stand.serving = PodsServing("NotServed", "one")
    first = await stand.look()
    assert first is not None
    long_ago = "2026-01-01T00:00:00Z"
    stand.api.objects[WHERE]["status"]["conditions"][0]["lastTransitionTime"] = long_ago
    stand.serving = PodsServing("PolicyMissing", "two")
    second = await stand.look()
    assert second is not None
    assert (second["reason"], second["lastTransitionTime"]) == ("PolicyMissing", long_ago)


async def test_during_startup_and_without_pods_nothing_is_written() -> None:
    starting = Stand(enabled=True)
    starting.serving = None
    assert await starting.look() is None
    assert await Stand(enabled=False).look() is None


async def test_where_pods_were_turned_off_it_says_so() -> None:
    stand = Stand(enabled=True)
    await stand.look()
    disabled = await stand.look(pods={"enabled": False})
    assert disabled is not None
    assert (disabled["status"], disabled["reason"]) == ("False", "Disabled")


async def test_what_the_operator_wrote_in_its_place_is_replaced() -> None:
    stand = Stand(enabled=True)
    operators = {"type": "PodsReady", "status": "False", "reason": "NotReported", "message": ""}
    stand.api.put(WHERE, {**stand.api.objects[WHERE], "status": {"conditions": [operators]}})
    served = await stand.look()
    assert served is not None
    assert served["reason"] == "Served"


async def test_a_write_that_fails_is_reported_and_done_in_the_next_pass() -> None:
    stand = Stand(enabled=True)
    stand.api.fail(ApiUnreachable("away"), verb="apply", times=1)
    assert await stand.look() is None
    assert set(stand.writer.warnings.failing) == {"hpc1"}
    assert await stand.look() is not None
    assert not stand.writer.warnings.failing
