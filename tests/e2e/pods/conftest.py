"""Red Box with pods on, installed for each file of this folder; a registry for files that pull images."""

from collections.abc import Iterator
from typing import Any

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from tests.e2e.harness import image_registry
from tests.e2e.harness.image_registry import Registry
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.registry_pods import make_pull_secret, push_image
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


@pytest.fixture(scope="module")
def lasting(bed: Bed, installed: None) -> Iterator[SlurmPods]:
    """Those of all tests of a file."""
    assert installed is None
    pods = SlurmPods(bed, Kubernetes(bed), bed.host("login"))
    yield pods
    pods.clean()


@pytest.fixture(scope="module")
def registry(bed: Bed) -> Iterator[Registry]:
    with image_registry.running(bed) as registry:
        yield registry


@pytest.fixture(scope="module")
def image(registry: Registry, bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> str:
    return push_image(registry, bed.host("login"), tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def pull_secret(lasting: SlurmPods, registry: Registry) -> list[dict[str, Any]]:
    return make_pull_secret(lasting, registry)
