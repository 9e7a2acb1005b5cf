"""How the bed is: each host with its daemons, and what of it is the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from redbox_bed import port_forwards, slow_home
from redbox_bed.bed import Bed
from redbox_bed.core.part_status import PartStatus
from redbox_bed.core.plan import Plan, Source
from redbox_bed.hosts.host import Host
from redbox_bed.kube import kube_cluster


@dataclass(frozen=True)
class HostStatus:
    """One host: whether it runs, whether its cable is plugged in, and its daemons."""

    name: str
    address: str
    cluster: str
    pid: int | None
    linked: bool
    daemons: tuple[PartStatus, ...]

    @property
    def well(self) -> bool:
        return self.pid is not None and self.linked and all(daemon.well for daemon in self.daemons)


@dataclass(frozen=True)
class BedStatus:
    """The whole bed at one moment."""

    hosts: tuple[HostStatus, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def well(self) -> bool:
        return not self.faults and all(host.well for host in self.hosts)

    def as_json(self) -> dict[str, Any]:
        hosts = [{**asdict(host), "well": host.well} for host in self.hosts]
        return {"well": self.well, "faults": self.faults, "notes": self.notes, "hosts": hosts}


def inspect(bed: Bed) -> BedStatus:
    """Of processes and cables only; no daemon is queried."""
    daemons = slow_home.status(bed) + [part for slurm in bed.slurms for part in slurm.status()]
    if bed.plan.options.kube is Source.OWN:
        daemons += kube_cluster.status(bed)
    return BedStatus(
        hosts=tuple(_host_status(bed, host, daemons) for host in bed.hosts.values()),
        faults=tuple(_faults(bed)),
        notes=notes(bed.plan),
    )


def _faults(bed: Bed) -> Iterator[str]:
    """What is wrong outside of all hosts."""
    if not bed.keeper.process():
        yield "the process that holds the hosts' root is gone: `up` has to boot all of them again"
    if not port_forwards.forwarder_runs(bed.places):
        yield "the forwarded ports are closed"


def notes(plan: Plan) -> tuple[str, ...]:
    """What is not of the bed's own making, or left out."""
    notes_by_source = {
        Source.EXISTING: "{} is the machine's own, not the bed's (BED_{}=existing)",
        Source.NONE: "no {} was asked for",
    }
    found = []
    if plan.options.slurm in notes_by_source:
        found.append(notes_by_source[plan.options.slurm].format("Slurm", "SLURM"))
    if plan.options.kube in notes_by_source:
        found.append(notes_by_source[plan.options.kube].format("Kubernetes", "KUBE"))
    return tuple(found)


def _host_status(bed: Bed, host: Host, daemons: Sequence[PartStatus]) -> HostStatus:
    pid = host.pid()
    linked = pid is not None and bed.switch.pid() is not None and (host is bed.switch or host.linked())
    return HostStatus(
        host.name,
        host.spec.address,
        host.spec.cluster,
        pid,
        linked,
        tuple(part for part in daemons if part.where == host.name),
    )


def table(status: BedStatus) -> Table:
    rows = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("HOST", "ADDRESS", "CLUSTER", "STATE", "DAEMONS"):
        rows.add_column(heading, no_wrap=heading != "DAEMONS")
    for host in status.hosts:
        rows.add_row(host.name, host.address, host.cluster, _state(host), _daemons(host))
    return rows


def _state(host: HostStatus) -> Text:
    if host.pid is None:
        return Text("off", style="red")
    return Text("up", style="green") if host.linked else Text("unplugged", style="red")


def _daemons(host: HostStatus) -> Text:
    words = [
        Text(d.name if d.well else f"{d.name} (down)", style="" if d.well else "red") for d in host.daemons
    ]
    return Text(" ").join(words)
