"""The bed for every test of this folder; it was brought up before the first of them (tests/conftest.py)."""

import json

import pytest

from redbox_bed import login_node, status
from redbox_bed.bed import Bed
from redbox_bed.delivery import RELEASE, Helm, Kubernetes
from redbox_bed.errors import BedError
from tests.e2e import slurmjobs


@pytest.fixture(scope="session")
def bed() -> Bed:
    """A bed that is up."""
    try:
        bed = Bed.open()
        down = [host.name for host in status.look(bed).hosts if not host.well]
    except BedError as error:
        pytest.fail(f"these tests need the bed: {error}", pytrace=False)
    if down:
        pytest.fail(
            f"these tests need the whole bed; {', '.join(down)} are not well: `deploy/local/bed up` repairs",
            pytrace=False,
        )
    return bed


@pytest.fixture(scope="module")
def bare(bed: Bed) -> None:
    """What other files have installed is gone: these tests bring a red-box and controllers of their own."""
    login = bed.host("login")
    if login.running(login_node.SERVICE):
        login.kill(login_node.SERVICE)
    slurmjobs.delivered.cache_clear()
    if not (bed.places.state / "bin/helm").exists():
        return
    helm, kubernetes = Helm(bed), Kubernetes(bed)
    if json.loads(helm("list", "--all", "--all-namespaces", "--output=json")):
        helm("uninstall", RELEASE, "--wait", "--timeout=2m")
    kinds = kubernetes("get", "crd", "--output=name").split()
    if any("slurmclusters" in kind for kind in kinds):
        for cluster in kubernetes("get", "slurmclusters", "--output=name").split():
            kubernetes("patch", cluster, "--type=merge", '--patch={"metadata":{"finalizers":null}}')
            kubernetes("delete", cluster, "--ignore-not-found", "--timeout=30s")
