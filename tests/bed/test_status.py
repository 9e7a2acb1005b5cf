"""The bed is well when all of it is."""

import io

import pytest
from rich.console import Console

from redbox_bed.core.part_status import PartStatus
from redbox_bed.core.plan import Options, Source, make_plan
from redbox_bed.status import BedStatus, HostStatus, notes, table


def host(*, pid: int | None = 7, linked: bool = True, daemon_runs: bool = True) -> HostStatus:
    daemons = (PartStatus("slurmd", "n1", daemon_runs, ""),)
    return HostStatus("n1", "10.77.0.21", "hpc1", pid, linked, daemons)


@pytest.mark.parametrize(
    ("ill", "word"),
    [
        (host(pid=None, linked=False), "off"),
        (host(linked=False), "unplugged"),
        (host(daemon_runs=False), "slurmd (down)"),
    ],
)
def test_one_thing_that_is_missing_is_seen_and_named(ill: HostStatus, word: str) -> None:
    status = BedStatus((ill,), faults=(), notes=())
    output = io.StringIO()
    Console(file=output, width=120).print(table(status))
    assert not status.well
    assert status.as_json()["well"] is False
    assert word in output.getvalue()


def test_all_well_is_well_and_a_fault_beside_the_hosts_is_not() -> None:
    assert BedStatus((host(),), faults=(), notes=()).well
    assert not BedStatus((host(),), faults=("the forwarded ports are closed",), notes=()).well


def test_what_is_not_the_beds_own_is_said() -> None:
    assert notes(make_plan(Options())) == ()
    (slurm,) = notes(make_plan(Options(slurm=Source.EXISTING)))
    assert "Slurm is the machine's own" in slurm
    (kube,) = notes(make_plan(Options(kube=Source.NONE)))
    assert "no Kubernetes" in kube
