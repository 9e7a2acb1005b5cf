"""red-box with 100,000 jobs.

The journal is filled beforehand and squeue is simulated. CPU is red-box's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from redbox_bed.bed import Bed
from redbox_bed.hosts.waiting import wait_until
from tests.bench.bench_redbox import resident_mib
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.large_queue import LargeQueue, calls_of_squeue, filled_redbox
from tests.bench.processor_time import TICKS_PER_MS
from tests.bench.rows import Figure, Target
from tests.e2e.harness.redbox_server import NAME, RedboxServer

KEPT = LargeQueue(waiting=10_000, ended=90_000)
CROWDED = LargeQueue(waiting=1_000, foreign=100_000)
OFTEN: Mapping[str, dict[str, float]] = {
    "jobs": {"shortest_interval_s": 1.0, "longest_interval_s": 2.0, "reads_per_minute": 60.0}
}
SETTLES_AFTER = 4
"""Looks: the first ones change each record, and let the pages of what they read stay in the process."""
LOOKS = sized(12, 6)
LOOK_S = 60


def processor_ms(server: RedboxServer) -> float:
    """Its own, without its children's."""
    fields = Path(f"/proc/{server.login.daemon_pid(NAME)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_MS


def wait_for_looks(server: RedboxServer, count: int) -> None:
    until = calls_of_squeue(server.login) + count
    wait_until(lambda: calls_of_squeue(server.login) >= until, count * LOOK_S, "red-box looks too seldom")


def cost_of_a_look(server: RedboxServer) -> float:
    """Seconds of CPU, once nothing changes any more."""
    wait_for_looks(server, SETTLES_AFTER)
    before = processor_ms(server)
    wait_for_looks(server, LOOKS)
    return (processor_ms(server) - before) / LOOKS / 1000


@benchmark(
    Figure(
        "redbox-memory-100000",
        f"resident memory, 100,000 jobs of which {KEPT.waiting:,} wait",
        "MiB",
        Target("value", "<=", 400),
    ),
    Figure("redbox-start-100000", "start with them", "s", Target("value", "<=", 10)),
    Figure("redbox-look-100000", "one poll with them, nothing changes: CPU", "s"),
    takes_s=110,
    rounds=1,
    warm_up=False,
)
@contextmanager
def redbox_100000(bed: Bed) -> Iterator[Trial]:
    with filled_redbox(bed, KEPT, dict(OFTEN)) as server:

        def measure() -> dict[str, float]:
            began = time.perf_counter()
            server.start()
            took = time.perf_counter() - began
            look = cost_of_a_look(server)
            return {
                "redbox-start-100000": took,
                "redbox-look-100000": look,
                "redbox-memory-100000": resident_mib(server),
            }

        yield Trial(measure, notes={"waiting": KEPT.waiting, "ended": KEPT.ended, "squeue": "simulated"})


@benchmark(
    Figure(
        "redbox-look-foreign",
        f"one poll of {CROWDED.foreign:,} jobs of others and {CROWDED.waiting:,} of ours: CPU",
        "s",
        Target("value", "<=", 0.5),
    ),
    Figure("redbox-look-foreign-memory", "resident memory with these", "MiB"),
    takes_s=90,
    short_s=40,
    rounds=1,
    warm_up=False,
)
@contextmanager
def redbox_look_foreign(bed: Bed) -> Iterator[Trial]:
    with filled_redbox(bed, CROWDED, dict(OFTEN)) as server:

        def measure() -> dict[str, float]:
            server.start()
            look = cost_of_a_look(server)
            return {"redbox-look-foreign": look, "redbox-look-foreign-memory": resident_mib(server)}

        yield Trial(measure, notes={"looks": LOOKS, "squeue": "simulated"})
