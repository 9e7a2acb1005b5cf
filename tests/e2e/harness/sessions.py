"""Sessions allowed or refused by the administrator of the installed red-box, and what is on the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.redbox_settings import settings_changed

Processes = dict[tuple[str, int], str]
"""By node and pid: the command line."""


@contextmanager
def sessions(login: Host, *, enabled: bool) -> Iterator[None]:
    """Allowed, or refused, as long as the block lasts."""
    with settings_changed(login, lambda settings: settings.update({"exec": {"enabled": enabled}})):
        yield


def processes_on_nodes(bed: Bed, user: str = "alice") -> Processes:
    """All that run under the user's uid, on every Slurm node."""
    found: Processes = {}
    for node in bed.plan.clusters[0].nodes:
        shown = bed.host(node.name).run("ps", "-ww", "--user", user, "-o", "pid=,args=", check=False).stdout
        for pid, _, words in (line.strip().partition(" ") for line in shown.splitlines()):
            found[node.name, int(pid)] = words
    return found
