"""Memory of idle sessions.

Two users have 100 sessions each, in two pods and two SlurmJobs.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import websockets
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from tests.bench.bench_pods import Sides
from tests.bench.bench_sessions import pods_of, with_sessions
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.pod_lives import ALICE, ON_SLURM, SLURM_JOB
from tests.bench.processor_time import named_processes
from tests.bench.rows import Figure, Target

IDLE = sized(200, 48)
PODS = 2
BOB = "bob"
OF_BOB = replace(SLURM_JOB, where=replace(SLURM_JOB.where, namespace=BOB))
OURS = frozenset({"redbox", "resourced", "agent"})
ERROR_CHANNEL = b"\3"
WITHIN_S = 60
SETTLES_S = 2


def memory_kib(bed: Bed) -> Counter[str]:
    """Of red-box, resourced and the agents, of srun, and of all on the Slurm nodes: their shares of pages."""
    shares: Counter[str] = Counter()
    ours = {pid: name for _, name, pid in named_processes(bed) if name in OURS}
    for host in bed.plan.hosts:
        for pid in bed.cgroups.members(host.name):
            if host.role is Role.COMPUTE:
                shares["nodes"] += _share_kib(pid)
            elif pid in ours:
                shares[ours[pid]] += _share_kib(pid)
            elif _name_of(pid) == "srun":
                shares["srun"] += _share_kib(pid)
    return shares


def _share_kib(pid: int) -> int:
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def idle_sessions_kib(
    bed: Bed, pods: Sequence[tuple[str, str]], count: int
) -> tuple[Counter[str], Counter[str]]:
    """What the first session in each leaves behind, and what so many take."""
    cold = memory_kib(bed)
    async with AsyncExitStack() as opened:
        await _open_sessions(opened, bed, pods)
    await asyncio.sleep(SETTLES_S)
    once = memory_kib(bed)
    async with AsyncExitStack() as opened:
        await _open_sessions(opened, bed, [pods[number % len(pods)] for number in range(count)])
        await asyncio.sleep(SETTLES_S)
        took = memory_kib(bed)
    took.subtract(once)
    once.subtract(cold)
    return once, took


async def _open_sessions(opened: AsyncExitStack, bed: Bed, pods: Sequence[tuple[str, str]]) -> None:
    """By the API server, one after the other; each has answered once."""
    cluster, user = _credentials(bed.places.kubeconfig)
    query = urlencode({"command": "cat", "stdin": "true", "stdout": "true"})
    server = cluster["server"].replace("https", "wss", 1)
    for namespace, name in pods:
        url = f"{server}/api/v1/namespaces/{namespace}/pods/{name}/exec?{query}"
        session = await opened.enter_async_context(
            websockets.connect(url, ssl=user, subprotocols=[websockets.Subprotocol("v5.channel.k8s.io")])
        )
        await session.send(b"\0x")
        while (answer := await asyncio.wait_for(session.recv(), WITHIN_S)) != b"\1x":
            if answer[:1] == ERROR_CHANNEL:
                raise RuntimeError(f"a session has ended: {answer[1:]!r}")


def _credentials(kubeconfig: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """The API server, and the administrator's certificate."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    folder = kubeconfig.parent / "bench-certificate"
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        for name in ("client-certificate-data", "client-key-data"):
            (folder / name).touch(mode=0o600)
            (folder / name).write_bytes(base64.b64decode(user[name]))
        context.load_cert_chain(folder / "client-certificate-data", folder / "client-key-data")
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    return cluster, context


@benchmark(
    Figure(
        "idle-sessions-memory",
        f"{IDLE} idle sessions: red-box, agents and resourced",
        "MiB",
        Target("value", "<=", 50 * IDLE / 200),
    ),
    Figure("idle-sessions-memory-redbox", "of that, red-box", "MiB"),
    Figure("idle-sessions-memory-resourced", "of that, resourced", "MiB"),
    Figure("idle-sessions-memory-agent", "of that, agents", "MiB"),
    Figure(
        "idle-sessions-memory-once",
        "what the first session of each job leaves, mostly agents",
        "MiB",
    ),
    Figure("idle-sessions-memory-srun", f"{IDLE} idle sessions: srun, on the login node", "MiB"),
    Figure(
        "idle-sessions-memory-nodes",
        f"{IDLE} idle sessions: relays, steps and commands, on the jobs' nodes",
        "MiB",
    ),
    takes_s=150,
    short_s=30,
    rounds=1,
    warm_up=False,
    within=with_sessions,
)
@contextmanager
def sessions_idle(sides: Sides) -> Iterator[Trial]:
    with pods_of(sides, ON_SLURM, PODS) as alices, pods_of(sides, OF_BOB, PODS) as bobs:
        pods = [*((ALICE, name) for name in alices), *((BOB, name + OF_BOB.pod_suffix) for name in bobs)]

        def measure() -> Mapping[str, float]:
            once, took = asyncio.run(idle_sessions_kib(sides.bed, pods, IDLE))
            parts = {f"idle-sessions-memory-{part}": took[part] / 1024 for part in sorted(OURS)}
            beside = {
                f"idle-sessions-memory-{part}": (once[part] + took[part]) / 1024 for part in ("srun", "nodes")
            }
            ours = {
                "idle-sessions-memory": sum(parts.values()),
                "idle-sessions-memory-once": sum(once[part] for part in OURS) / 1024,
            }
            return {**ours, **parts, **beside}

        yield Trial(measure, notes={"sessions": IDLE, "pods": len(pods)})
