"""The nodes of the bed's first Slurm, as an administrator looks after them."""

from __future__ import annotations

from contextlib import suppress

from redbox_bed import status
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError


def resume_what_slurm_drained(bed: Bed) -> None:
    """Slurm drains a node that refuses a job or cannot end one, and leaves it so.

    After a slurmctld that was killed this can come long after the test that killed it: with the next job that
    is given the id of one that is forgotten and still on the node (Duplicate jobid).
    """
    with suppress(
        BedError
    ):  # a test may have left the host or Slurm to be repaired by the next one's fixtures
        login = bed.host("login")
        drained = login.run("sinfo", "--noheader", "--list-reasons", "--format=%u|%N", check=False).stdout
        for by, _, nodes in (line.partition("|") for line in drained.split()):
            if by == "slurm":
                login.run("scontrol", "update", f"nodename={nodes}", "state=resume", check=False)


def state_of(bed: Bed) -> str:
    """For a test that failed: hosts that lack a daemon, Slurm's nodes and jobs, red-box's last lines."""
    try:
        ill = [host.name for host in status.inspect(bed).hosts if not host.well]
    except BedError as error:
        return f"cannot be looked at: {error}"
    login = bed.host("login")
    nodes = login.run("sinfo", "--noheader", "--Node", "--format=%N %T %u %H %E", check=False, timeout=30)
    queue = login.run("squeue", "--noheader", "--format=%A %j %u %T %S %N %r", check=False, timeout=30)
    text = f"Hosts that are not well: {ill or 'none'}\n{nodes.stdout}{nodes.stderr}{queue.stdout[-4000:]}"
    return f"{text}\n{_newest_lines(bed)}"


def _newest_lines(bed: Bed) -> str:
    """Of red-box: it writes no token."""
    logs = bed.places.state.glob("hosts/login/own/var/log/bed/redbox*.log")
    with suppress(OSError, ValueError):
        newest = max(logs, key=lambda log: log.stat().st_mtime)
        return f"{newest.name}:\n{newest.read_text(errors='replace')[-6000:]}"
    return "red-box has no log here"
