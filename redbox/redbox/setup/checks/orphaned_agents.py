"""Checks for agents whose server has ended.

Agents end when their server has ended and no submit is under way. One that remains was stopped by its user,
or hangs on a file server; no server talks to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from redbox.agents.program.session import SHUTDOWN_S
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, warning
from redbox.setup.checks.machine import Machine
from redbox.setup.install.layout import Layout

PROCESSES = ("/usr/bin/ps", "-e", "-o", "pid=,ppid=,etimes=,user:32=,args=")
DEADLINE_S = 20.0
INIT = "1"  # the parent of processes whose own parent has ended
COLUMNS = 5


def check_orphaned_agents(machine: Machine, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    """Find processes that run the agent's file and are children of init."""
    if settings.agents.transport != "sudo":
        return
    shown = machine.run(PROCESSES, DEADLINE_S)
    if shown.code != 0:
        yield warning(f"orphaned agents were not searched for: {shown.summary}", "check that ps -e works")
        return
    for line in shown.stdout.splitlines():
        columns = line.split(None, COLUMNS - 1)
        if len(columns) == COLUMNS and columns[4].split()[-1] == str(layout.agent):
            yield from _check_process(*columns[:4])


def _check_process(pid: str, parent: str, age_s: str, user: str) -> Iterator[Finding]:
    if parent == INIT and age_s.isdigit() and int(age_s) > SHUTDOWN_S:
        yield warning(
            f"process {pid} of {user} is an agent whose server has ended, and it hangs",
            f"ps -o stat,wchan,args -p {pid} shows where it hangs; end it with kill -9 {pid}",
        )
