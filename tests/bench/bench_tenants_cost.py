"""What turns cost a caller when nobody floods: red-box's CPU time and answer for a request.

Both red-boxes of a round are new: the one of the product, and one on asyncio's own event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from redbox_bed.bed import Bed
from redbox_bed.login_node import LIBRARY
from tests.bench.bench_slurm import clear
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.processor_time import time_of
from tests.bench.rows import Figure, Target
from tests.e2e.harness.redbox_jobs import new_key, script
from tests.e2e.harness.redbox_server import NAME, RedboxServer, running

LOADS = Path(__file__).parent / "loads"
PLAIN_LOOP = "/tmp/bench-plain-loop.py"
REQUESTS = "/tmp/bench-requests.py"
COUNT = sized(3000, 1000)
WARMS_UP = 200
AT_MOST = Target("ratio", "<=", 1.03)


@benchmark(
    Figure("tenants-cost-cpu", "red-box's CPU time for a GET of a job, nobody else asks", "ms", AT_MOST),
    Figure("tenants-cost-get", "GET of a job, nobody else asks: median", "ms", AT_MOST),
    takes_s=120,
    rounds=5,
    warm_up=False,
    baseline_name="asyncio's own event loop",
)
@contextmanager
def tenants_cost(bed: Bed) -> Iterator[Trial]:
    clear(bed)
    login = bed.host("login")
    login.write(PLAIN_LOOP, (LOADS / "plain_loop.py").read_text())
    login.write(REQUESTS, (LOADS / "requests.py").read_text())
    yield Trial(
        measure=lambda: cost(bed),
        baseline=lambda: cost(bed, wrapper=("python3", "-I", PLAIN_LOOP, LIBRARY)),
        notes={"requests": COUNT},
    )
    clear(bed)


def cost(bed: Bed, wrapper: tuple[str, ...] = ()) -> dict[str, float]:
    with running(bed, wrapper=wrapper) as server:
        path = f"/v1/jobs/{asyncio.run(held_job(server))}"
        ask(server, path, WARMS_UP)
        before = cpu_ms(server)
        took = ask(server, path, COUNT)
        return {
            "tenants-cost-cpu": (cpu_ms(server) - before) / COUNT,
            "tenants-cost-get": median(took) * 1000,
        }


async def held_job(server: RedboxServer) -> str:
    key = new_key()
    async with server.client_of("bob") as client:
        await client.put_job(key, script("true", name="bench", hold=True))
    return key


def ask(server: RedboxServer, path: str, count: int) -> list[float]:
    asked = {"ca": server.authority.certificate.decode(), "path": path, "count": count}
    asked["token"] = server.token_of("bob")
    answer = server.login.run("python3", REQUESTS, user="bob", stdin=json.dumps(asked), timeout=120)
    took: list[float] = json.loads(answer.stdout)
    return took


def cpu_ms(server: RedboxServer) -> float:
    pid = server.login.daemon_pid(NAME)
    assert pid
    ((_, time),) = time_of(pid)
    return time.own
