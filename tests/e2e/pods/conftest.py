"""Red Box with pods on, installed for each file of this folder."""

from collections.abc import Iterator

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes
from tests.e2e.harness.slurm_pods import SlurmPods, pods_installed


@pytest.fixture(scope="module")
def installed(bed: Bed) -> Iterator[None]:
    with pods_installed(bed):
        yield


@pytest.fixture
def pods(bed: Bed, installed: None) -> Iterator[SlurmPods]:
    assert installed is None
    login_node.start(bed.host("login"))
    pods = SlurmPods(bed, Kubernetes(bed), bed.host("login"))
    yield pods
    pods.clean()
