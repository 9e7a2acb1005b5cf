"""red-box: submits, polling, state and logs.

Callers run on the login host, with one TLS connection each.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redbox_bed.bed import Bed
from tests.bench.bench_slurm import USER, clear, on_login
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target, percentile
from tests.e2e.harness.redbox_jobs import ended, new_key, script
from tests.e2e.harness.redbox_server import NAME, RedboxServer, running

LOAD = Path(__file__).parent / "loads/redbox.py"
PROGRAM = "/tmp/bench-redbox.py"
BARE = "bare sbatch"
SUBMITS = sized(200, 100)
MANY = 32
MANY_TRACKED = sized(10_000, 3_000)
CHANGES = sized(40, 20)
LINES = sized(150, 60)
LINES_EACH = sized(
    60, 30
)  # of as many jobs as there are readers; the second half is measured, when all of them run
READERS = 200
LARGE_MB = 400
SMALL_MB = 4
WINDOW_S = sized(60, 30)
SETTLES_S = 15
UNLIMITED = {"jobs": {"submits_per_second": 1e6, "submit_burst": 1e6}}
OF_A_USER = re.compile(r"^\t(\S+)\s*\(\s*\d+\) count:(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Callers:
    """Callers of one red-box, on its login host."""

    server: RedboxServer

    def install(self) -> None:
        self.server.login.write(PROGRAM, LOAD.read_text())

    def run(self, load: str, timeout: float = 600, **asked: Any) -> Any:
        """The token goes by stdin: a command line can be read by all, and is part of errors."""
        authority = self.server.authority.certificate.decode()
        settings = {"token": self.server.token_of(USER), "ca": authority, **asked}
        command = ("python3", PROGRAM, load)
        done = self.server.login.run(*command, user=USER, stdin=json.dumps(settings), timeout=timeout)
        return json.loads(done.stdout)


@contextmanager
def redbox(bed: Bed, **options: Any) -> Iterator[Callers]:
    """Have a red-box of its own, and an empty queue before and after."""
    clear(bed)
    with running(bed, sections=UNLIMITED, **options) as server:
        callers = Callers(server)
        callers.install()
        yield callers
    clear(bed)
    bed.host("login").run("sh", "-c", "rm -rf /home/alice/redbox /home/alice/bench-*", timeout=300)


# ---------------------------------------------------------------------------------------------- submits
def submits(name: str, seen: Mapping[str, Any]) -> dict[str, float]:
    milliseconds = [call * 1000 for call in seen["calls"]]
    return {
        f"{name}-rate": SUBMITS / seen["whole"],
        f"{name}-p50": percentile(milliseconds, 50),
        f"{name}-p99": percentile(milliseconds, 99),
    }


@contextmanager
def submit_trial(bed: Bed, name: str, parallel: int) -> Iterator[Trial]:
    with redbox(bed) as callers:

        def measure() -> dict[str, float]:
            clear(bed)
            return submits(name, callers.run("submit", count=SUBMITS, parallel=parallel))

        def baseline() -> dict[str, float]:
            clear(bed)
            return submits(name, on_login(bed, "submit.py", SUBMITS, parallel))

        yield Trial(measure, baseline, notes={"jobs_per_round": SUBMITS, "callers": parallel})


@benchmark(
    Figure("redbox-submit-rate", "PUT of a job, one caller", "jobs/s", Target("ratio", ">=", 0.9)),
    Figure("redbox-submit-p50", "one PUT of a job: median", "ms", Target("difference", "<=", 1.5)),
    Figure("redbox-submit-p99", "one PUT of a job: 99th percentile", "ms"),
    takes_s=60,
    short_s=25,
    baseline_name=BARE,
)
@contextmanager
def redbox_submit(bed: Bed) -> Iterator[Trial]:
    with submit_trial(bed, "redbox-submit", 1) as trial:
        yield trial


@benchmark(
    Figure("redbox-submit-32-rate", "PUT of jobs, 32 callers", "jobs/s", Target("ratio", ">=", 0.9)),
    Figure("redbox-submit-32-p50", "one PUT of a job, 32 callers: median", "ms"),
    Figure("redbox-submit-32-p99", "one PUT of a job, 32 callers: 99th percentile", "ms"),
    takes_s=40,
    short_s=20,
    baseline_name=BARE,
)
@contextmanager
def redbox_submit_32(bed: Bed) -> Iterator[Trial]:
    with submit_trial(bed, "redbox-submit-32", MANY) as trial:
        yield trial


# ---------------------------------------------------------------------------------------------- polling
def calls_of(bed: Bed, users: set[str]) -> int:
    """How many RPCs slurmctld has had from these users since its counts began."""
    counts = OF_A_USER.findall(bed.host("ctl").run("sdiag").stdout)
    return sum(int(count) for user, count in counts if user in users)


def resident_mib(server: RedboxServer) -> float:
    status = Path(f"/proc/{server.login.daemon_pid(NAME)}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


@contextmanager
def tracking_trial(bed: Bed, jobs: int) -> Iterator[Trial]:
    with redbox(bed) as callers:
        if jobs:
            callers.run("submit", count=jobs, parallel=8)
        time.sleep(SETTLES_S)  # what the submits had it ask is over
        users = {callers.server.user, USER}

        def measure() -> dict[str, float]:
            before, started = calls_of(bed, users), time.monotonic()
            time.sleep(WINDOW_S)
            calls, minutes = calls_of(bed, users) - before - 1, (time.monotonic() - started) / 60
            return {
                f"redbox-rpcs-{jobs}": max(0, calls) / minutes,
                f"redbox-memory-{jobs}": resident_mib(callers.server),
            }

        yield Trial(measure, notes={"held_jobs": jobs, "window_s": WINDOW_S})


def tracking_figures(jobs: int, *, promised: bool = True) -> tuple[Figure, Figure]:
    rpcs = f"RPCs to slurmctld, {jobs:,} jobs tracked"
    return (
        Figure(f"redbox-rpcs-{jobs}", rpcs, "1/min", Target("value", "<=", 60) if promised else None),
        Figure(
            f"redbox-memory-{jobs}",
            f"resident memory, {jobs:,} jobs tracked",
            "MiB",
            MEMORY if promised else None,
        ),
    )


MEMORY = Target("value", "<=", 130)


@benchmark(*tracking_figures(0), takes_s=150, rounds=1)
@contextmanager
def redbox_tracking_0(bed: Bed) -> Iterator[Trial]:
    with tracking_trial(bed, 0) as trial:
        yield trial


@benchmark(*tracking_figures(1_000, promised=False), takes_s=170, rounds=1)
@contextmanager
def redbox_tracking_1000(bed: Bed) -> Iterator[Trial]:
    with tracking_trial(bed, 1_000) as trial:
        yield trial


@benchmark(*tracking_figures(MANY_TRACKED), takes_s=270, rounds=1)
@contextmanager
def redbox_tracking_10000(bed: Bed) -> Iterator[Trial]:
    with tracking_trial(bed, MANY_TRACKED) as trial:
        yield trial


# ---------------------------------------------------------------------------------------------- how soon
def percentiles(name: str, seconds: list[float], unit: float) -> dict[str, float]:
    return {f"{name}-p{percent}": percentile(seconds, percent) * unit for percent in (50, 99)}


@benchmark(
    Figure("redbox-watch-p50", "a job starts or ends -> watch event: median", "s", Target("value", "<=", 1)),
    Figure(
        "redbox-watch-p99",
        "a job starts or ends -> watch event: 99th percentile",
        "s",
        Target("value", "<=", 2),
    ),
    takes_s=110,
    short_s=35,
    rounds=3,
)
@contextmanager
def redbox_watch(bed: Bed) -> Iterator[Trial]:
    with redbox(bed) as callers:
        yield Trial(
            lambda: percentiles("redbox-watch", callers.run("changes", count=CHANGES), 1),
            notes={"jobs_per_round": CHANGES},
        )


@benchmark(
    Figure("redbox-line-p50", "a job writes a line -> reader: median", "ms", Target("value", "<=", 200)),
    Figure("redbox-line-p99", "a job writes a line -> reader: 99th percentile", "ms"),
    takes_s=90,
    short_s=30,
    rounds=3,
)
@contextmanager
def redbox_line(bed: Bed) -> Iterator[Trial]:
    with redbox(bed) as callers:
        yield Trial(
            lambda: percentiles("redbox-line", callers.run("lines", count=LINES), 1000),
            notes={"lines_per_round": LINES},
        )


@contextmanager
def crowded(bed: Bed) -> Iterator[None]:
    """Have partition `long` run many jobs on each CPU: they sleep."""

    def oversubscribe(how: str) -> None:
        bed.host("login").run("scontrol", "update", "partition=long", f"oversubscribe={how}")

    oversubscribe("force:32")
    try:
        yield
    finally:
        oversubscribe("no")


@benchmark(
    Figure(
        "redbox-line-200-p50",
        f"{READERS} jobs, a line a second, a reader each: median",
        "ms",
        Target("value", "<=", 200),
    ),
    Figure("redbox-line-200-p99", f"{READERS} jobs, a reader each: 99th percentile", "ms"),
    takes_s=190,
    rounds=1,
)
@contextmanager
def redbox_line_200(bed: Bed) -> Iterator[Trial]:
    with redbox(bed) as callers, crowded(bed):
        yield Trial(
            lambda: percentiles(
                "redbox-line-200", callers.run("lines_of_many", jobs=READERS, count=LINES_EACH), 1000
            ),
            notes={"jobs": READERS, "lines_each": LINES_EACH},
        )


# ---------------------------------------------------------------------------------------------- how fast
def written(server: RedboxServer, megabytes: int, tasks: int) -> list[str]:
    """Have jobs write logs of so many megabytes each, and return where to read them."""

    async def write() -> list[str]:
        key = new_key()
        line = "yes 0123456789012345678901234567890123456789012345678"
        wanted = script(f"{line} | head -c {megabytes}000000", name="bench", array=f"0-{tasks - 1}")
        async with server.client_of(USER) as client:
            await client.put_job(key, wanted)
            await ended(client, key, within_s=300)
        return [f"/v1/jobs/{key}/logs/stdout?task={task}" for task in range(tasks)]

    return asyncio.run(write())


@contextmanager
def reading_trial(bed: Bed, name: str, megabytes: int, readers: int) -> Iterator[Trial]:
    with redbox(bed) as callers:
        paths = written(callers.server, megabytes, readers)

        def measure() -> dict[str, float]:
            seen = callers.run("read", paths=paths)
            if seen["bytes"] != megabytes * 1_000_000 * readers:
                raise RuntimeError(f"{seen['bytes']} bytes were read")
            return {name: seen["bytes"] / 1e6 / seen["whole"]}

        yield Trial(measure, notes={"megabytes_each": megabytes, "readers": readers})


@benchmark(
    Figure("redbox-read", f"a log of {LARGE_MB} MB, one reader", "MB/s", Target("value", ">=", 200)),
    takes_s=35,
    short_s=25,
)
@contextmanager
def redbox_read(bed: Bed) -> Iterator[Trial]:
    with reading_trial(bed, "redbox-read", LARGE_MB, 1) as trial:
        yield trial


@benchmark(
    Figure("redbox-read-200", f"{READERS} logs of {SMALL_MB} MB, {READERS} readers, together", "MB/s"),
    takes_s=70,
    rounds=3,
)
@contextmanager
def redbox_read_200(bed: Bed) -> Iterator[Trial]:
    with reading_trial(bed, "redbox-read-200", SMALL_MB, READERS) as trial:
        yield trial
