"""The CA of a red-box from a ConfigMap: copied by the operator, which connects only then."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from http import HTTPStatus

import pytest

from redbox.server.certificates import make_authority
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, ResourcePath
from redbox_kube.status.status_writer import StatusWriter
from redbox_operator.metrics import OperatorMetrics
from redbox_operator.object_cache import ObjectCache
from redbox_operator.slurmcluster.ca_bundle import LONGEST
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from redbox_operator.slurmcluster.registry import RedboxLinks
from tests.kube.fakes import FakeApiServer

WHERE = ResourcePath(SLURM_CLUSTERS, "slurm")
CONFIG_MAP = ResourcePath(kinds.CONFIG_MAP, "slurm-redbox", "hpc")
SPEC = {
    "endpoint": "https://slurm-redbox.hpc.svc:8443",
    "audience": "redbox.dev/slurm/4711",
    "caBundleFrom": {"namespace": "hpc", "name": "slurm-redbox"},
}


def authority() -> str:
    return make_authority("slurm", datetime.now(UTC)).certificate.decode()


class Operator:
    """The reconciler of SlurmClusters at one that names a ConfigMap."""

    def __init__(self) -> None:
        self.api = FakeApiServer()
        self.api.put(WHERE, metadata={"name": "slurm"}, spec=dict(SPEC))
        self.links = RedboxLinks()
        self.clusters = SlurmClusters(
            StatusWriter(self.api.client, OperatorMetrics().writes),
            ServiceAccountName("redbox-system", "redbox-operator"),
            ObjectCache(),
            self.links,
            wake_uid=print,
            wake_cluster=print,
        )
        self.clusters.jobs_listed()

    async def looks(self) -> None:
        self.clusters.updated(self.api.objects[WHERE])
        await self.clusters._reconcile("slurm")

    @property
    def bundle(self) -> str:
        return base64.b64decode(self.api.objects[WHERE]["spec"].get("caBundle", "")).decode()

    @property
    def trouble(self) -> str:
        conditions = self.api.objects[WHERE]["status"]["conditions"]
        return str(next(each["message"] for each in conditions if each["type"] == "Reachable"))


@pytest.fixture
def operator() -> Operator:
    return Operator()


async def test_it_waits_for_the_config_map_and_follows_it(operator: Operator) -> None:
    await operator.looks()
    assert "it waits for ca.crt of ConfigMap slurm-redbox in hpc" in operator.trouble
    assert operator.bundle == ""
    for text in (authority(), authority()):
        operator.api.put(CONFIG_MAP, data={"ca.crt": text})
        await operator.looks()
        assert operator.bundle == text
    writes = operator.api.writes
    operator.api.remove(CONFIG_MAP)
    await operator.looks()
    assert operator.bundle == text
    operator.api.put(CONFIG_MAP, data={"ca.crt": text})
    await operator.looks()
    assert operator.bundle == text
    assert operator.api.writes <= writes + 1  # a status at most


async def test_until_then_there_is_no_link_which_would_trust_public_authorities(operator: Operator) -> None:
    async with asyncio.TaskGroup() as group:
        operator.clusters._group = group
        await operator.looks()
        assert operator.links.get("slurm") is None
        problem = operator.links.problem_of("slurm")
        assert "it waits for ca.crt" in problem.message, "a SlurmJob says so too, and no companion is made"
        operator.api.put(CONFIG_MAP, data={"ca.crt": authority()})
        await operator.looks()
        await operator.looks()
        assert operator.links.get("slurm") is not None
        operator.clusters.deleted("slurm")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("nonsense", "is not a PEM certificate"), ("x" * LONGEST + "x", "has more than 49152 bytes")],
)
async def test_what_is_no_certificate_is_not_copied(operator: Operator, text: str, problem: str) -> None:
    """And it does not keep the status from being written: others may write that ConfigMap."""
    operator.api.put(CONFIG_MAP, data={"ca.crt": text})
    await operator.looks()
    assert f"ca.crt of ConfigMap slurm-redbox in hpc {problem}" in operator.trouble
    assert operator.bundle == ""


async def test_an_operator_of_other_namespaces_says_that_it_may_not_read_it(operator: Operator) -> None:
    operator.api.fail(ApiRefused(HTTPStatus.FORBIDDEN, "no"), verb="get", kind="ConfigMap")
    await operator.looks()
    assert "the operator may not read ConfigMap slurm-redbox in hpc" in operator.trouble


async def test_of_one_that_was_changed_meanwhile_nothing_is_written(operator: Operator) -> None:
    await operator.looks()
    operator.api.put(CONFIG_MAP, data={"ca.crt": authority()})
    operator.clusters.updated(operator.api.objects[WHERE])
    there = operator.api.objects[WHERE]
    changed = {**there["spec"], "caBundleFrom": {"namespace": "other", "name": "x"}}
    operator.api.put(WHERE, {**there, "spec": changed})
    await operator.clusters._reconcile("slurm")
    assert operator.bundle == ""
