"""Idle sessions in a running job: what they take of memory, all parts of ours together."""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import websockets
import yaml

from tests.bench.bench_pods import Sides
from tests.bench.bench_sessions import first_byte_ms, pods_of, with_sessions
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.pod_lives import ALICE, ON_SLURM
from tests.bench.processor_time import AGENT, BY_COMMAND
from tests.bench.rows import Figure, Target
from tests.e2e.harness.sessions import set_sessions

IDLE = sized(120, 50)
"""resourced allows 125 sessions of a namespace."""
PODS = 2
"""It allows 64 of a pod."""
OURS = {"redbox", "resourced", "agent"}
ERROR_CHANNEL = b"\3"


def own_memory_mib() -> float:
    """Of red-box, resourced and agents of this machine's bed: their share of pages, all together."""
    return sum(map(_share_mib, _own_pids()))


def _own_pids() -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text(errors="replace")
        except OSError:
            continue
        names = {name for pattern, name in BY_COMMAND.items() if pattern.search(command)}
        if OURS & names or AGENT in command:
            yield int(folder.name)


def _share_mib(pid: int) -> float:
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


async def with_idle_sessions(kubeconfig: Path, pods: Sequence[str], count: int) -> float:
    """MiB of ours that so many sessions take: opened through the API server, each has answered once."""
    cluster, user = _credentials(kubeconfig)
    query = urlencode({"command": "cat", "stdin": "true", "stdout": "true", "container": "main"})
    pods_url = f"{cluster['server'].replace('https', 'wss', 1)}/api/v1/namespaces/{ALICE}/pods"
    before = own_memory_mib()
    async with AsyncExitStack() as opened:
        for number in range(count):
            url = f"{pods_url}/{pods[number % len(pods)]}/exec?{query}"
            session = await opened.enter_async_context(
                websockets.connect(url, ssl=user, subprotocols=[websockets.Subprotocol("v5.channel.k8s.io")])
            )
            await session.send(b"\0x")
            while (answer := await asyncio.wait_for(session.recv(), 60)) != b"\1x":
                if answer[:1] == ERROR_CHANNEL:
                    raise RuntimeError(f"a session has ended: {answer[1:]!r}")
        await asyncio.sleep(2)
        return own_memory_mib() - before


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
        "sessions-idle-memory",
        f"{IDLE} idle sessions: red-box, agent and resourced together",
        "MiB",
        Target("value", "<=", 50 * IDLE / 200),
    ),
    takes_s=120,
    short_s=30,
    rounds=1,
    warm_up=False,
    within=with_sessions,
)
@contextmanager
def sessions_idle(sides: Sides) -> Iterator[Trial]:
    set_sessions(sides.bed.host("login"), enabled=True, max_sessions_per_user=IDLE)
    with pods_of(sides, ON_SLURM, PODS) as names:
        for name in names:
            first_byte_ms(sides, ON_SLURM, name)  # the relay is there

        def measure() -> Mapping[str, float]:
            used = asyncio.run(with_idle_sessions(sides.bed.places.kubeconfig, names, IDLE))
            return {"sessions-idle-memory": used}

        yield Trial(measure, notes={"sessions": IDLE})
