"""What can be delivered to which bed."""

from dataclasses import replace

import pytest

from redbox_bed.delivery import refuse_half_a_bed
from redbox_bed.errors import NotPossibleError
from redbox_bed.plan import Options, Source


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (replace(Options(), kube=Source.NONE), "started with --no-kube"),
        (replace(Options(), slurm=Source.EXISTING), "docs/admin-login-node.md"),
    ],
)
def test_half_a_bed_is_told_what_it_lacks(options: Options, said: str) -> None:
    with pytest.raises(NotPossibleError, match=said):
        refuse_half_a_bed(options)


def test_a_cluster_of_the_users_own_is_a_whole_bed() -> None:
    refuse_half_a_bed(replace(Options(), kube=Source.EXISTING))
