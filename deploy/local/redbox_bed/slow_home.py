"""A /home that is late, as NFS and Lustre are: each Slurm host runs a client of it (deploy/local/slowfs).

The client runs in the host, over the folder that all of them share, and obeys commands at its control socket.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.part_status import PartStatus
from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import BACKING, CACHE, Daemon, Host
from redbox_bed.hosts.waiting import wait_until_serves
from redbox_bed.programs.golang import Program, ensure_program

MODULE = PACKAGE.parent / "slowfs"
CONTROL = "/run/bed/slowfs.sock"
_NAME = "slowfs"
_MOUNT_SECONDS = 20


def ensure_slowfs(places: Places, progress: Progress) -> Path:
    """The client, built once: a minute, and seconds after a change."""
    return ensure_program(Program(_NAME, MODULE, "some 150"), places, progress)


def ensure(bed: Bed, host: Host) -> None:
    """Mount it in the host, unless it is; also after its client was killed."""
    program = _inside(bed)
    client = Daemon(_NAME, (program, "-mount", "/home", "-backing", BACKING, "-control", CONTROL))
    host.ensure(client)
    wait_until_serves(host, client, partial(_answers, host, program), _MOUNT_SECONDS)


def _answers(host: Host, program: str) -> bool:
    """It does as soon as it has mounted; what a killed client left only looks mounted."""
    return host.run(program, "-control", CONTROL, "status", check=False).returncode == 0


def status(bed: Bed) -> list[PartStatus]:
    """A line for each host's client."""
    return [
        PartStatus(_NAME, host.name, host.running(_NAME), "/home")
        for host in bed.hosts.values()
        if bed.plan.has_slow_home(host.spec)
    ]


def command(bed: Bed, host: Host, *words: str) -> str:
    """Send the host's client a command, such as hang, resume or status; its answer."""
    return host.run(_inside(bed), "-control", CONTROL, *words).stdout.strip()


def _inside(bed: Bed) -> str:
    """The program's path as hosts see it."""
    program = ensure_slowfs(bed.places, Progress.silent())
    return f"{CACHE}/{program.relative_to(bed.places.cache)}"
