"""Ports of the machine that lead into the bed: taking them, watching over the process behind them.

The ports are taken here, on the machine's own loopback unless the plan says otherwise; the process then runs
in the switch's network namespace. A socket belongs to the namespace that it was made in: connections come in
here and go out there, and no address of the bed is visible on the machine. What happens to the bytes is
`forwarder`'s.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError, NotPossibleError
from redbox_bed.core.part_status import PartStatus
from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.core.plan import Forward, Plan
from redbox_bed.core.processes import Process
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.cgroups import MACHINE

_START_SECONDS = 120
_START = """
set -e
record=$1; shift
while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift
echo "$$ $(cut -d' ' -f22 /proc/$$/stat)" >"$record"
exec "$@"
"""
"""It is among the bed's processes outside all hosts, and on record, before it begins: so `down` and the next
`up` find it, wherever this one is interrupted."""


@dataclass(frozen=True)
class Target:
    """A port of the machine, and where in the bed it leads."""

    listen: str
    port: int
    address: str
    target_port: int


def targets(plan: Plan) -> tuple[Target, ...]:
    """The plan's ports, with the addresses of their hosts."""
    return tuple(_target(plan, forward) for forward in plan.forwards)


def _target(plan: Plan, forward: Forward) -> Target:
    return Target(forward.address, forward.port, plan.host(forward.host).address, forward.target_port)


def up(bed: Bed, progress: Progress) -> None:
    """Have the plan's ports lead into the bed as it is now."""
    switch = bed.host(bed.plan.switch.name).process()
    if switch is None:
        raise BedError("the bed's switch is not running; run `up`")
    # A switch that was rebooted has another network: the forwarder then has to enter that one.
    wanted = {"switch": asdict(switch), "targets": [asdict(target) for target in targets(bed.plan)]}
    table = _folder(bed.places) / "table.json"
    if forwarder_runs(bed.places) and _saved(table) == wanted:
        return
    with progress.step("forwarded ports"), ExitStack() as taken:
        stop_forwarder(bed.places)
        _folder(bed.places).mkdir(parents=True, exist_ok=True)
        routes = [(taken.enter_context(_listen(target)), target) for target in targets(bed.plan)]
        table.write_text(json.dumps(wanted, indent=1))
        _start(bed, routes, switch.pid)


def status(bed: Bed) -> list[PartStatus]:
    """One line: where each port leads."""
    ports = [f"{each.address}:{each.port} -> {each.host}:{each.target_port}" for each in bed.plan.forwards]
    return [PartStatus("forwarder", "machine", forwarder_runs(bed.places), ", ".join(ports))]


def stop_forwarder(places: Places) -> None:
    """End the process; its ports are free afterwards."""
    if running := Process.load(_pid_file(places)):
        running.kill()
    _pid_file(places).unlink(missing_ok=True)


def forwarder_process(places: Places) -> Process | None:
    return Process.load(_pid_file(places))


def forwarder_runs(places: Places) -> bool:
    return forwarder_process(places) is not None


def refuse_taken_ports(places: Places, plan: Plan) -> None:
    """One sentence for the first port that something else has; for a look before anything is started."""
    if not forwarder_runs(places):
        for target in targets(plan):
            _listen(target).close()


def _listen(target: Target) -> socket.socket:
    try:
        return socket.create_server((target.listen, target.port), backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise NotPossibleError(
                f"BED_ADDRESS={target.listen} is not an address of this machine: see `ip address`"
            ) from error
        by = port_owner(target.port) or "another process"
        raise NotPossibleError(
            f"port {target.port} on {target.listen} is taken by {by}: end that first, or move all the bed's "
            "ports up by setting BED_PORT_OFFSET"
        ) from error


def port_owner(port: int) -> str | None:
    """`NAME (pid N)` of the process that listens on this port of the machine, if it is visible."""
    inodes = {f"socket:[{inode}]" for inode in listening_inodes(Path("/proc/net/tcp").read_text(), port)}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended just now, or is not ours to look at
            if any(_open_file(link) in inodes for link in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    return None


def _open_file(link: Path) -> str:
    """What a file descriptor in /proc stands for; nothing if it was closed meanwhile."""
    with suppress(OSError):
        return str(link.readlink())
    return ""


def listening_inodes(table: str, port: int) -> set[str]:
    """From the text of /proc/net/tcp: the sockets in state LISTEN (0A) on a port."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {row[9] for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port}


def _saved(table: Path) -> object:
    try:
        return json.loads(table.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _folder(places: Places) -> Path:
    return places.state / "forwarder"


def _pid_file(places: Places) -> Path:
    return _folder(places) / "pid"


def _start(bed: Bed, routes: Sequence[tuple[socket.socket, Target]], switch_pid: int) -> None:
    bed.cgroups.create(MACHINE)
    log = _folder(bed.places) / "log"
    arguments = [f"{taken.fileno()}={target.address}:{target.target_port}" for taken, target in routes]
    recorded = ["sh", "-c", _START, "sh", str(_pid_file(bed.places)), *bed.cgroups.entry_files(MACHINE), "--"]
    enter = ["nsenter", f"--net=/proc/{switch_pid}/ns/net", "--"]
    with log.open("ab") as errors:
        forwarder = subprocess.Popen(
            [*recorded, *enter, sys.executable, "-m", "redbox_bed.forwarder", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=[taken.fileno() for taken, _ in routes],
            start_new_session=True,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(PACKAGE.parent)},
        )
    if not _says_something(forwarder):
        forwarder.kill()
        raise BedError("the forwarder of the bed's ports did not start", log=log)


def _says_something(forwarder: subprocess.Popen[bytes]) -> bool:
    """It prints a line once it serves; if it died instead, its output ends without one."""
    with forwarder.stdout or open(os.devnull, "rb") as output:  # noqa: PTH123
        with selectors.DefaultSelector() as ready:
            ready.register(output, selectors.EVENT_READ)
            readable = ready.select(_START_SECONDS)
        return bool(readable and output.readline())
