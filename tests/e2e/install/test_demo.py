"""The demo, as README has a newcomer run it, on the bed that is up."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import deliver
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.resourced_process import rendered
from tests.e2e.harness.slurm_release import skip_without_pmix

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def left_as_found(bed: Bed) -> Iterator[None]:
    """The demo turns Virtual delivery on.

    Other files make resourced's account and rights without helm, which then refuses to take them for its own.
    """
    Kubernetes(bed)("delete", "--ignore-not-found", "--filename=-", stdin=rendered(bed))
    yield
    (bed.places.state / "demo").unlink(missing_ok=True)
    deliver(bed, Progress.silent())
    Kubernetes(bed)("delete", "nodes", "--selector=redbox.dev/virtual", "--wait=false")


@pytest.mark.usefixtures("left_as_found")
def test_the_demo_shows_what_it_promises(bed: Bed) -> None:
    skip_without_pmix(bed)  # its examples start ranks by srun
    ended = subprocess.run(
        [CHECKOUT / "deploy/demo"], check=False, capture_output=True, text=True, timeout=800
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    shown = ended.stdout
    assert "< Slurm runs me. >" in shown
    ranks = re.findall(r"^rank \d of 3 on n[123]$", shown, re.MULTILINE)
    assert len(ranks) == 9, shown
    assert re.search(r"pingpong-\d+\.out", shown)
    assert re.search(r"^hpc1\.debug +Ready", shown, re.MULTILINE)
    assert re.search(r"^hello +Succeeded", shown, re.MULTILINE)
    assert f"export KUBECONFIG={bed.places.kubeconfig}" in shown
