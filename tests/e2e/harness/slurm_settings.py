"""A cluster of the bed whose slurm.conf has more lines for as long as a test needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until

PATH = "/etc/slurm/slurm.conf"
CONTROLLER = "ctl"
TAKES_S = 60


@contextmanager
def configured(bed: Bed, *lines: str) -> Iterator[None]:
    """Every host's slurm.conf, and slurmctld that has read it; as it was before, afterwards."""
    hosts = [bed.host(name) for name in bed.plan.clusters[0].hosts]
    before = {host.name: host.read(PATH) for host in hosts}
    try:
        _write(hosts, {name: conf + "\n".join(["", *lines, ""]).encode() for name, conf in before.items()})
        yield
    finally:
        _write(hosts, before)


def _write(hosts: list[Host], contents: dict[str, bytes]) -> None:
    """slurmctld begins anew when it reads it again: it is waited for until it answers."""
    for host in hosts:
        host.write(PATH, contents[host.name])
    controller = next(host for host in hosts if host.name == CONTROLLER)
    controller.run("scontrol", "reconfigure")
    wait_until(
        lambda: controller.run("squeue", check=False).returncode == 0, TAKES_S, "slurmctld did not come back"
    )
