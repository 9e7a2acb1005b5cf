"""The chart's NetworkPolicies, where something enforces them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import CHART, NAMESPACE, RELEASE, Helm
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.network_policies import clients, enforced
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.skipif(
    not os.environ.get("NETWORK_POLICIES"), reason="NETWORK_POLICIES=1 builds and runs what enforces them"
)


@pytest.fixture
def monitoring(bed: Bed) -> Iterator[str]:
    """The only namespace that may read the operator's metrics."""
    SlurmJobs.on(bed)
    name = new_name()
    upgrade = ("upgrade", RELEASE, str(CHART), "--reuse-values", "--take-ownership", "--timeout=110s")
    from_it = f'[{{"namespaceSelector":{{"matchLabels":{{"kubernetes.io/metadata.name":"{name}"}}}}}}]'
    Helm(bed)(*upgrade, f"--set-json=networkPolicy.metricsFrom={from_it}")
    yield name
    Helm(bed)(*upgrade, '--set-json=networkPolicy.metricsFrom=[{"namespaceSelector":{}}]')


def test_metrics_are_read_from_the_named_namespace_alone_and_jobs_run(
    bed: Bed, jobs: SlurmJobs, monitoring: str
) -> None:
    kubectl = Kubernetes(bed)
    (pod,) = kubectl.list("pods", NAMESPACE, labels="app.kubernetes.io/name=redbox-operator")
    metrics = f"{pod['status']['podIP']}:8080/metrics?"
    with (
        enforced(bed, kubectl),
        clients(bed, kubectl, monitoring) as inside,
        clients(bed, kubectl, new_name()) as outside,
    ):
        eventually(lambda: all(inside.pages(metrics)), what="metrics for those who may read them")
        eventually(lambda: not any(outside.pages(metrics)), what="the end of the others' way in")
        assert all(inside.pages(metrics))
        assert jobs.apply("true").finishes()["phase"] == "Succeeded"
