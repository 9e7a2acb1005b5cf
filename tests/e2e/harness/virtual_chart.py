"""Virtual delivery as the chart installs it, and the same red-box beside it with containers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import CHART, NAMESPACE, RELEASE, Helm
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.resourced_process import virtual_nodes
from tests.e2e.harness.waiting import eventually

WITH_CONTAINERS = "containers"


def install(bed: Bed, delivery: str, *, resourced: bool) -> None:
    Helm(bed)(
        *("upgrade", RELEASE, str(CHART), "--reuse-values", "--take-ownership", "--wait", "--timeout=110s"),
        *(
            f"--set=resourced.enabled={str(resourced).lower()}",
            f"--set=slurmClusters.hpc1.delivery={delivery}",
        ),
    )


@contextmanager
def virtual_delivery(bed: Bed) -> Iterator[None]:
    """resourced serves; in the end all is as it was delivered."""
    kubernetes = Kubernetes(bed)
    install(bed, "Virtual", resourced=True)
    try:
        eventually(lambda: kubernetes.get("node", "hpc1.debug"))
        eventually(lambda: _is_served(kubernetes))
        yield
    finally:
        install(bed, "Container", resourced=False)
        forget_resourced(kubernetes)


def forget_resourced(kubernetes: Kubernetes) -> None:
    """Remove what a resourced leaves whose rights were taken away: its nodes, and its Lease of 30 s."""
    kubernetes.delete("node", *virtual_nodes(kubernetes))
    kubernetes.delete("lease", "redbox-resourced", namespace=NAMESPACE)


def _is_served(kubernetes: Kubernetes) -> bool:
    """Whether the API server takes resourced's certificate, which the operator approves."""
    try:
        return kubernetes.raw("/api/v1/nodes/hpc1.debug/proxy/healthz") == "ok"
    except BedError:
        return False


@contextmanager
def with_containers(kubernetes: Kubernetes) -> Iterator[str]:
    """The same red-box as another SlurmCluster, whose companions are containers; no job of it may be left."""
    cluster = kubernetes.get("slurmcluster", "hpc1")
    spec = {**cluster["spec"], "delivery": "Container"}
    made = {
        "apiVersion": cluster["apiVersion"],
        "kind": "SlurmCluster",
        "metadata": {"name": WITH_CONTAINERS},
    }
    kubernetes.apply(json.dumps({**made, "spec": spec}))
    yield WITH_CONTAINERS
    kubernetes.delete("slurmcluster", WITH_CONTAINERS)
