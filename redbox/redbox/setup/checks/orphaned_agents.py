"""Checks for agents that a server left behind.

They leave by themselves when their server is gone, as soon as no submit is under way. One that stays longer
was stopped by its user, or hangs on a file server; nobody speaks to it any more.
"""

from __future__ import annotations

from collections.abc import Iterator

from redbox.agents.program.session import LEAVE_S
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, warning
from redbox.setup.checks.machine import Machine
from redbox.setup.install.layout import Layout

PROCESSES = ("/usr/bin/ps", "-e", "-o", "pid=,ppid=,etimes=,user:32=,args=")
DEADLINE_S = 20.0
ORPHAN = "1"  # whose parent is init, since their own has ended
COLUMNS = 5


def check_left_behind(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """Processes of the agent's file that no server is the parent of."""
    if settings.agents.transport != "sudo":
        return
    shown = machine.run(PROCESSES, DEADLINE_S)
    if shown.code != 0:
        yield warning(f"agents that were left behind were not looked for: {shown.words}", "see ps -e")
        return
    for line in shown.stdout.splitlines():
        columns = line.split(None, COLUMNS - 1)
        if len(columns) == COLUMNS and columns[4].split()[-1] == str(layout.agent):
            yield from _judge(*columns[:4])


def _judge(pid: str, parent: str, age_s: str, user: str) -> Iterator[Finding]:
    if parent == ORPHAN and age_s.isdigit() and int(age_s) > LEAVE_S:
        yield warning(
            f"process {pid} of {user}, an agent, was left behind by a server that is gone, and hangs",
            f"look at it with ps -o stat,wchan,args -p {pid}, and end it: kill -9 {pid}",
        )
