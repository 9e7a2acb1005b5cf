"""The chart while a cluster is there: its operator does not leave it alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import RELEASE, Helm
from tests.e2e.harness.hosted_slurm import HostedSlurm, applied_slurm, hosting, upgrade

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def slurm(bed: Bed) -> Iterator[HostedSlurm]:
    with hosting(bed, "24.11") as kubernetes, applied_slurm(bed, kubernetes, 0) as slurm:
        yield slurm


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("values", [{"enabled": False}, {"namespaces": ["elsewhere"]}])
def test_values_that_leave_a_served_namespace_out_are_refused(bed: Bed, values: dict[str, object]) -> None:
    with pytest.raises(BedError, match="NodeSet cpu of namespace hpc is served by this release: delete it"):
        upgrade(bed, values)


def test_an_uninstall_is_refused_and_the_release_can_be_used_again(bed: Bed, slurm: HostedSlurm) -> None:
    helm = Helm(bed)
    with pytest.raises(BedError, match="NodeSet hpc/cpu, Controller hpc/slurm: delete them first"):
        helm("uninstall", RELEASE)
    slurm.scale(1)
    slurm.has_idle(1)
    revision = json.loads(helm("history", RELEASE, "--output=json"))[-1]["revision"]
    helm("rollback", RELEASE, str(revision), "--wait")
    upgrade(bed, {})
    slurm.scale(0)
    slurm.has_idle(0)
