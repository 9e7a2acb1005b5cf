"""Requests of one tenant while another floods red-box.

red-box has one core and both tenants' programs another. The flood runs with nice 19, and so do the compute
nodes, which elsewhere are other machines. Agents run on any core.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from tests.bench.bench_slurm import clear
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target, percentile
from tests.e2e.harness.redbox_jobs import new_key, script
from tests.e2e.harness.redbox_server import NAME, RedboxServer, running

LOAD = Path(__file__).parent / "loads/tenants.py"
PROGRAM = "/tmp/bench-tenants.py"
UPLOADS = "/dev/shm/bench-tenants"
WINDOW_S = sized(8, 4)
LONGEST = "30:00"  # of a job: the group takes 16 minutes
YIELDS = 19
TWICE_IDLE = Target("ratio", "<=", 2)
AT_MOST_MS = Target("value", "<=", 250)
FLOODS = {
    "whoami": "32 connections of whoami",
    "connects": "TCP connects without TLS",
    "tls-connects": "TLS handshakes",
    "websockets": "WebSockets without a first message",
    "downloads": "8 downloads",
    "uploads": "8 uploads",
    "exec": "8 commands with endless output",
    "watches": "32 watches, begun again and again",
    "checks": "8 connections of checks",
    "submits": "32 connections of submits, refused by their rate",
}
SEEN = {"put": "PUT", "get": "GET", "line": "log line"}
JOBS = {
    "alice": "truncate -s 100M large; sleep 3600",
    "bob": "while :; do date +%s.%N; sleep 0.137; done",  # in step with no interval of red-box
}


@dataclass(frozen=True)
class Tenants:
    """A red-box with a running job of each."""

    server: RedboxServer
    keys: Mapping[str, str]

    def seen_by_bob(self, flood: str | None, addresses: tuple[str, str]) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "ca": self.server.authority.certificate.decode(),
            "flood": flood,
            "seconds": WINDOW_S,
        }
        for user, address in zip(JOBS, addresses, strict=True):
            asked[user] = {
                "token": self.server.token_of(user),
                "address": address,
                "key": self.keys[user],
                "uploads": UPLOADS,
            }
        core = str(max(os.sched_getaffinity(0)))
        command = ("taskset", "-c", core, "python3", PROGRAM)
        seen: dict[str, Any] = json.loads(
            self.server.login.run(*command, user="bob", stdin=json.dumps(asked), timeout=120).stdout
        )
        return seen

    def pin(self) -> None:
        """red-box alone: agents that run already keep all cores."""
        core = min(os.sched_getaffinity(0))
        for thread in Path(f"/proc/{self.server.login.daemon_pid(NAME)}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})


@contextmanager
def two_tenants(bed: Bed) -> Iterator[Tenants]:
    clear(bed)
    with compute_nodes_yield(bed), running(bed, sections={"exec": {"enabled": True}}) as server:
        server.login.write(PROGRAM, LOAD.read_text())
        server.login.run("install", "-d", "-o", "alice", UPLOADS)
        tenants = Tenants(server, asyncio.run(begun_jobs(server)))
        for flood in ("exec", "downloads", None):  # the agents start
            tenants.seen_by_bob(flood, OWN_ADDRESSES)
        tenants.pin()
        yield tenants
        server.login.run("rm", "-rf", UPLOADS)
    clear(bed)


@contextmanager
def compute_nodes_yield(bed: Bed) -> Iterator[None]:
    set_priority(bed, YIELDS)
    try:
        yield
    finally:
        set_priority(bed, 0)


def set_priority(bed: Bed, priority: int) -> None:
    """What slurmd starts inherits it."""
    for host in bed.plan.of_role(Role.COMPUTE):
        for pid in bed.cgroups.members(host.name):
            with suppress(OSError):  # it has ended
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    os.setpriority(os.PRIO_PROCESS, int(thread.name), priority)


async def begun_jobs(server: RedboxServer) -> dict[str, str]:
    keys = {}
    for user, text in JOBS.items():
        keys[user] = new_key()
        async with server.client_of(user) as client, asyncio.timeout(60):
            await client.put_job(keys[user], script(text, name="bench", resources={"time": LONGEST}))
            while (await client.get_job(keys[user])).phase.value != "Running":  # noqa: ASYNC110 (polled)
                await asyncio.sleep(0.3)
    return keys


OWN_ADDRESSES = ("127.0.0.2", "127.0.0.3")
ONE_ADDRESS = ("127.0.0.1", "127.0.0.1")


def figures(flood: str, what: str) -> Iterator[Figure]:
    for name, seen in SEEN.items():
        yield Figure(f"tenants-{flood}-{name}-p50", f"{seen} beside {what}: median", "ms", TWICE_IDLE)
        yield Figure(
            f"tenants-{flood}-{name}-p99", f"{seen} beside {what}: 99th percentile", "ms", AT_MOST_MS
        )


def enter(flood: str, what: str, addresses: tuple[str, str], called: str) -> None:
    def values(seen: Mapping[str, Any]) -> dict[str, float]:
        return {
            f"tenants-{called}-{name}-p{percent}": percentile(seen[name], percent) * 1000
            for name in SEEN
            for percent in (50, 99)
        }

    @contextmanager
    def prepare(tenants: Tenants) -> Iterator[Trial]:
        yield Trial(
            measure=lambda: values(tenants.seen_by_bob(flood, addresses)),
            baseline=lambda: values(tenants.seen_by_bob(None, addresses)),
            notes={"window_s": WINDOW_S},
        )

    prepare.__name__ = f"tenants_{called}"
    benchmark(
        *figures(called, what),
        takes_s=90,
        rounds=3,
        warm_up=False,
        baseline_name="no flood",
        within=two_tenants,
    )(prepare)


for each, described in FLOODS.items():
    enter(each, described, OWN_ADDRESSES, each)
enter("tls-connects", "TLS handshakes from bob's own address", ONE_ADDRESS, "same-address")
