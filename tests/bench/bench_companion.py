"""The companion.

The companion, red-box and the job run on three hosts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.bench.bench_slurm import USER, clear
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target, percentile
from tests.e2e.harness import companion_pod
from tests.e2e.harness.companion_pod import CompanionPod
from tests.e2e.harness.redbox_jobs import ended, script, started
from tests.e2e.harness.redbox_server import RedboxServer, running

LOAD = Path(__file__).parent / "loads/companion.py"
HERE, NODE = "n3", "n1"
STARTS = sized(20, 10)
LINES = sized(100, 50)
MEGABYTES = 50
ENDS_WITHIN_S = 180
LINE = "yes " + "x" * 99
BARE_START = "a bare Python that connects"
CONNECT = "import socket; socket.create_connection(('127.0.0.1', PORT))"
TAIL = "tail -f on the same host"


@dataclass(frozen=True)
class Reader:
    """Someone on a host who reads a job's log: the companion, or whoever has the file."""

    host: Host
    server: RedboxServer

    def measure(self, mode: str, command: list[str], env: Mapping[str, str], **asked: Any) -> Any:
        settings = json.dumps({"command": command, "env": env, **asked})
        stdin = LOAD.read_text()
        # `timeout`, since a benchmark that is killed ends nothing on a host.
        load = ("timeout", "--kill-after=5", str(ENDS_WITHIN_S), "python3", "-", mode, settings)
        done = self.host.run(*load, user=USER, stdin=stdin, timeout=ENDS_WITHIN_S + 10)
        return json.loads(done.stdout)

    def companion(self, mode: str, pod: CompanionPod, **asked: Any) -> Any:
        environment = {**pod.environment(), "PATH": "/usr/bin:/bin"}
        return self.measure(mode, list(companion_pod.COMMAND), environment, **asked)

    def tail(self, mode: str, path: str, **asked: Any) -> Any:
        return self.measure(mode, ["tail", "-c", "+1", "-f", path], {"PATH": "/usr/bin:/bin"}, **asked)

    def job(self, *lines: str, wait: Any = started) -> tuple[CompanionPod, str]:
        """A job that is under way, or has ended; and the path of what it writes."""
        request = script(f"#SBATCH --nodelist={NODE}", *lines, name="bench")
        pod = CompanionPod(self.host, self.server, request.model_dump(mode="json", exclude_defaults=True))
        pod.introduce()

        async def submit() -> str:
            async with self.server.client_of(USER) as client:
                await client.put_job(pod.key, request)
                job = await wait(client, pod.key)
            assert job.logs
            return str(job.logs.stdout)

        return pod, asyncio.run(submit())


@contextmanager
def reader(bed: Bed) -> Iterator[Reader]:
    """What an earlier one left that was killed is cleared away first."""
    host = bed.host(HERE)
    _clear(bed, host)
    companion_pod.install(host)
    try:
        with running(bed) as server:
            yield Reader(host, server)
    finally:
        _clear(bed, host)


def _clear(bed: Bed, host: Host) -> None:
    clear(bed)
    host.run("sh", "-c", "rm -rf /tmp/companion-* /home/alice/redbox", timeout=300)


@benchmark(
    Figure(
        "companion-start",
        "start -> first connection",
        "ms",
        Target("value", "<=", 45),
    ),
    takes_s=30,
    short_s=20,
    baseline_name=BARE_START,
)
@contextmanager
def companion_start(bed: Bed) -> Iterator[Trial]:
    with reader(bed) as here:
        pod = CompanionPod(here.host, here.server, {"batch": "#!/bin/sh\n"})
        pod.introduce()
        environment = {**pod.environment(), "REDBOX_ENDPOINT": "https://127.0.0.1:PORT", "PATH": "/usr/bin"}

        def start(command: list[str]) -> dict[str, float]:
            took = here.measure("start", command, environment, count=STARTS)
            return {"companion-start": percentile(took, 50)}

        yield Trial(
            lambda: start(list(companion_pod.COMMAND)),
            lambda: start(["python3", "-I", "-c", CONNECT]),
            notes={"starts_per_round": STARTS},
        )


@benchmark(
    Figure("companion-memory", "resident memory while following a log", "MiB", Target("value", "<=", 20)),
    Figure("companion-memory-own", "of that, not shared", "MiB"),
    takes_s=25,
    short_s=15,
    rounds=3,
)
@contextmanager
def companion_memory(bed: Bed) -> Iterator[Trial]:
    with reader(bed) as here:
        pod, _ = here.job("echo begun", "sleep 600")

        def measure() -> dict[str, float]:
            seen = here.companion("memory", pod)
            return {"companion-memory": seen["VmRSS"], "companion-memory-own": seen["RssAnon"]}

        yield Trial(measure)


@benchmark(
    Figure(
        "companion-line-p50",
        "log line -> the companion's stdout: median",
        "ms",
        Target("value", "<=", 300),
    ),
    Figure("companion-line-p99", "log line -> the companion's stdout: 99th percentile", "ms"),
    takes_s=75,
    short_s=30,
    baseline_name=TAIL,
    rounds=3,
)
@contextmanager
def companion_line(bed: Bed) -> Iterator[Trial]:
    """One job, which goes on writing: each reader has to catch up with it before its lines count."""

    def percentiles(seen: list[float]) -> dict[str, float]:
        return {f"companion-line-p{percent}": percentile(seen, percent) for percent in (50, 99)}

    with reader(bed) as here:
        pod, path = here.job("while :; do date +%s.%N; sleep 0.05; done")
        yield Trial(
            lambda: percentiles(here.companion("lines", pod, count=LINES)),
            lambda: percentiles(here.tail("lines", path, count=LINES)),
            notes={"lines_per_round": LINES},
        )


@benchmark(
    Figure("companion-throughput", f"a log of {MEGABYTES} MB of 100-byte lines", "MB/s"),
    takes_s=25,
    baseline_name=TAIL,
    rounds=3,
)
@contextmanager
def companion_throughput(bed: Bed) -> Iterator[Trial]:
    count = MEGABYTES * 1_000_000
    with reader(bed) as here:
        pod, path = here.job(f"{LINE} | head -c {count}", wait=ended)
        yield Trial(
            lambda: {"companion-throughput": here.companion("drain", pod, bytes=count)},
            lambda: {"companion-throughput": here.tail("drain", path, bytes=count)},
        )
