"""What can be delivered to which bed."""

from dataclasses import replace

import pytest

from redbox_bed.core.errors import NotPossibleError
from redbox_bed.core.plan import Options, Source, make_plan
from redbox_bed.delivery import reached_at, refuse_half_a_bed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (replace(Options(), kube=Source.NONE), "started with --no-kube"),
        (replace(Options(), slurm=Source.EXISTING), "docs/administrators/login-node.md"),
        (replace(Options(), kube=Source.EXISTING), "BED_ADDRESS"),
    ],
)
def test_half_a_bed_is_told_what_it_lacks(options: Options, said: str) -> None:
    with pytest.raises(NotPossibleError, match=said):
        refuse_half_a_bed(options)


def test_a_cluster_of_the_users_own_finds_red_box_at_the_machines_port_for_it() -> None:
    options = replace(Options(), kube=Source.EXISTING, address="192.0.2.7", port_offset=1000)
    refuse_half_a_bed(options)
    assert reached_at(make_plan(options)) == ("192.0.2.7", 19443)
    assert reached_at(make_plan(Options())) == ("10.77.0.10", 8443)
