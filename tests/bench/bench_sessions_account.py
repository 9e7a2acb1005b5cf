"""CPU of the programs that carry a session's bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from redbox.relay.program_source import relay_command
from redbox_bed.bed import Bed
from tests.bench.bench_pods import Sides
from tests.bench.bench_sessions import (
    MEGABYTES,
    MIB,
    first_byte_ms,
    in_mb_s,
    out_mb_s,
    pods_of,
    with_sessions,
)
from tests.bench.benchmark import Trial, benchmark
from tests.bench.pod_lives import ON_SLURM
from tests.bench.processor_time import TICKS_PER_MS, name_of
from tests.bench.rows import Figure

RELAY = "\0".join(relay_command())
OF_SLURM = {"srun", "slurmstepd"}
OF_OURS = {"relay", "agent", "redbox", "resourced"}
DIRECTIONS = {"out": out_mb_s, "in": in_mb_s}
GROUPS = {
    "slurm": "srun and slurmstepd",
    "redbox": "relay, agent, red-box and resourced",
    "apiserver": "the API server",
}
FIGURES = [
    Figure(
        f"session-cpu-{direction}-{group}", f"100 MB through kubectl exec, {direction}: CPU of {what}", "ms"
    )
    for direction in DIRECTIONS
    for group, what in GROUPS.items()
]


def relays(bed: Bed) -> Iterator[int]:
    """Their pids, on all nodes."""
    for host in bed.plan.hosts:
        for pid in bed.cgroups.members(host.name):
            with suppress(OSError, UnicodeDecodeError):
                if Path(f"/proc/{pid}/cmdline").read_text().startswith(RELAY):
                    yield pid


def used_ms(bed: Bed) -> dict[tuple[int, str], float]:
    """So far, of each process of the bed that a session's bytes go through."""
    found = {}
    for host in bed.plan.hosts:
        for pid in bed.cgroups.members(host.name):
            folder = Path(f"/proc/{pid}")
            try:
                comm, command = (folder / "comm").read_text().strip(), (folder / "cmdline").read_text()
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (OSError, UnicodeDecodeError):
                continue
            if group := group_of(comm, command):
                found[pid, group] = (int(fields[11]) + int(fields[12])) / TICKS_PER_MS
    return found


def group_of(comm: str, command: str) -> str | None:
    """What of a way a process is; None for what is no part of it."""
    name = "relay" if command.startswith(RELAY) else name_of(comm, command) or comm
    return "slurm" if name in OF_SLURM else "redbox" if name in OF_OURS else name if name in GROUPS else None


def cpu_ms(sides: Sides, direction: str, pod: str) -> Mapping[str, float]:
    """For 100 MB, by group: those of a way stay as long as its relay."""
    before = used_ms(sides.bed)
    DIRECTIONS[direction](sides, ON_SLURM, pod)
    after = used_ms(sides.bed)
    return {
        f"session-cpu-{direction}-{group}": sum(
            (now - before.get(key, 0.0)) * 100e6 / (MEGABYTES * MIB)
            for key, now in after.items()
            if key[1] == group
        )
        for group in GROUPS
    }


@benchmark(*FIGURES, takes_s=120, rounds=3, warm_up=False, within=with_sessions)
@contextmanager
def session_cpu(sides: Sides) -> Iterator[Trial]:
    with pods_of(sides, ON_SLURM, 1) as (pod,):
        first_byte_ms(sides, ON_SLURM, pod)  # the relay is there

        def measure() -> Mapping[str, float]:
            return {**cpu_ms(sides, "out", pod), **cpu_ms(sides, "in", pod)}

        yield Trial(measure, notes={"megabytes": MEGABYTES, "cores": os.cpu_count() or 0})
