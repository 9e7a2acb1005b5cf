"""The transport ssh, compared with sudo.

Both run on the login host, so ssh encrypts on the same host at both ends.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.bench.bench_redbox import Callers, redbox, written
from tests.bench.bench_slurm import USER
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, percentile

SUDO = "red-box with sudo"
OBSERVER = "bob"
SUBMITS = sized(100, 50)
LINES = sized(60, 30)
LOG_MB = sized(200, 100)
IDLE_S = sized(120, 60)
SETTLES_S = 10
BYTES = re.compile(r"\bbytes_(?:sent|received):([0-9]+)")
CONNECTIONS = ("ss", "-tinH", "state", "established", "( sport = :22 )")


def worked(callers: Callers) -> dict[str, float]:
    """What a user sees, and what the user has on the login node after it."""
    callers.run("submit", count=2, parallel=1)  # the agent has started
    seen = callers.run("submit", count=SUBMITS, parallel=1)
    lines = callers.run("lines", count=LINES)
    read = callers.run("read", paths=written(callers.server, LOG_MB, 1))
    return {
        "ssh-submit-rate": SUBMITS / seen["whole"],
        "ssh-submit-p50": percentile([call * 1000 for call in seen["calls"]], 50),
        "ssh-line-p50": percentile(lines, 50) * 1000,
        "ssh-read": read["bytes"] / 1e6 / read["whole"],
        "ssh-processes": processes_of(callers.server.login),
        "ssh-connections": connections_of(callers.server.login),
    }


def processes_of(login: Host) -> int:
    """Processes that run as the user, and those of root that carry them."""
    shown = login.run("ps", "-e", "-o", "user:32=,args=").stdout.splitlines()
    return sum(
        line.split()[0] == USER or (re.search(r"sshd|sudo", line) is not None and USER in line)
        for line in shown
    )


def connections_of(login: Host) -> int:
    """Connections to sshd: all are the user's, since no observer is set."""
    return sum(not line[:1].isspace() for line in login.run(*CONNECTIONS).stdout.splitlines())


@benchmark(
    Figure("ssh-submit-rate", "PUT of a job, one caller", "jobs/s"),
    Figure("ssh-submit-p50", "one PUT of a job: median", "ms"),
    Figure("ssh-line-p50", "a job writes a line -> reader: median", "ms"),
    Figure("ssh-read", f"a log of {LOG_MB} MB, one reader", "MB/s"),
    Figure("ssh-processes", "processes of a user on the login node", "1"),
    Figure("ssh-connections", "connections of a user to sshd", "1"),
    takes_s=330,
    rounds=3,
    baseline_name=SUDO,
    warm_up=False,
)
@contextmanager
def ssh_agents(bed: Bed) -> Iterator[Trial]:
    def measured(transport: str) -> dict[str, float]:
        with redbox(bed, transport=transport) as callers:
            return worked(callers)

    notes = {"submits": SUBMITS, "lines": LINES, "megabytes": LOG_MB}
    yield Trial(lambda: measured("ssh"), lambda: measured("sudo"), notes=notes)


def bytes_of(login: Host) -> int:
    """What the connections to sshd have carried so far, both ways."""
    return sum(map(int, BYTES.findall(login.run(*CONNECTIONS).stdout)))


@benchmark(
    Figure("ssh-idle-bytes", "traffic without jobs, observer and one user", "kB/min"),
    takes_s=150,
    rounds=1,
    warm_up=False,
)
@contextmanager
def ssh_idle(bed: Bed) -> Iterator[Trial]:
    with redbox(bed, transport="ssh", observer=OBSERVER) as callers:
        login = callers.server.login
        callers.run("submit", count=1, parallel=1)
        login.run("scancel", f"--user={USER}")
        time.sleep(SETTLES_S)

        def measure() -> dict[str, float]:
            before, started = bytes_of(login), time.monotonic()
            time.sleep(IDLE_S)
            minutes = (time.monotonic() - started) / 60
            return {"ssh-idle-bytes": (bytes_of(login) - before) / 1000 / minutes}

        yield Trial(measure, notes={"window_s": IDLE_S})
