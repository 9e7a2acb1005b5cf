"""What pods may leave behind: jobs in the queue, and files and processes of alice."""

from __future__ import annotations

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.slurm_pods import HOME, USER

NODES = ("n1", "n2", "n3")


def left_behind(bed: Bed) -> set[str]:
    """Jobs in the queue, folders and processes on the nodes, and unfinished files in the home."""
    login = bed.host("login")
    found = {f"job {line}" for line in _lines(login, f"squeue --noheader --user={USER} --format='%A %j %T'")}
    unfinished = f"find {HOME} -name '.redbox-*' -o -name '*.sif.*.*'"
    found |= {f"home {line}" for line in _lines(login, unfinished)}
    for node in map(bed.host, NODES):
        folders = _lines(node, "ls -d /tmp/redbox-pod-* /dev/shm/redbox-pod-* 2>/dev/null")
        processes = _lines(node, f"ps -u {USER} -o args=")
        found |= {f"{node.name} {line}" for line in (*folders, *processes)}
    return found


def _lines(host: Host, command: str) -> list[str]:
    return host.run("sh", "-c", command, check=False).stdout.splitlines()
