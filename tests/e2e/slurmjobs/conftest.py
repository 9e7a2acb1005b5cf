"""What several files of this folder use."""

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.volumes import CLAIM, claim_of


@pytest.fixture
def volume(bed: Bed) -> Host:
    """A claim of alice's, and the node that holds its folder."""
    return claim_of(bed, "alice", CLAIM)
