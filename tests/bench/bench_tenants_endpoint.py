"""SlurmJobs of a namespace while another namespace's SlurmEndpoint is hostile.

The API server is real; both red-boxes are simulated. Each kind of hostility has its own idle baseline.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import yaml
from kubernetes.aio import client, config

from redbox_api.models import Job, OwnerRef, Phase, WatchEvent
from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes
from redbox_clusters.names import API_VERSION, SLURM_JOBS
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.api.crds import all_crds
from tests.bench.bench_operator import HEALTH_PORT, SCRIPT
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.hostile_redbox import MANNERS
from tests.bench.rows import Figure, Target, percentile
from tests.bench.scripted_redbox import ScriptedRedbox

CHANGES = sized(15, 8)
JOBS_OF_BOB = 30
"""A SlurmJob of a SlurmEndpoint has ten changes in a row, and then one in two seconds."""
JOBS_OF_MALLORY = 8
BEGINS_S = 0.5
"""A manner shows its effect once the connections are made again."""
BETWEEN_S = 0.03
SEEN_WITHIN_S = 60.0
BOB, MALLORY = "tenants-bob-", "tenants-mallory-"


def figure_of(manner: str) -> str:
    return "tenants-endpoint-" + manner.replace(",", "").replace(" ", "-")


@dataclass
class Tenants:
    """Two namespaces, each with a SlurmEndpoint, and the operator between them."""

    objects: ObjectClient
    redbox: ScriptedRedbox
    bob: str
    mallory: str
    hostile: subprocess.Popen[str]
    uids: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    _phases: dict[str, str] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: int = 0

    async def submit(self, namespace: str, count: int) -> list[str]:
        made: list[Object | None] = []
        for number in range(count):
            body = {
                "apiVersion": API_VERSION,
                "kind": "SlurmJob",
                "metadata": {"name": f"job-{number}", "namespace": namespace},
                "spec": {"endpoint": "mine", "batch": SCRIPT},
            }
            made.append(await self.objects.create(jobs_of(namespace), body))
        return [one["metadata"]["uid"] for one in made if one]

    def behave(self, manner: str) -> None:
        assert self.hostile.stdin is not None
        self.hostile.stdin.write(json.dumps({"manner": manner, "rows": self.rows}) + "\n")
        self.hostile.stdin.flush()

    async def watch(self) -> None:
        where = jobs_of(self.bob)
        _, version = [page async for page in self.objects.pages(where)][-1]
        while True:
            async for event in self.objects.watch(where, version):
                metadata = event["object"]["metadata"]
                version = metadata["resourceVersion"]
                self._phases[metadata.get("uid", "")] = event["object"].get("status", {}).get("phase", "")
                self._changed.set()

    async def shows(self, uid: str, *phases: str) -> None:
        """One of the phases, or any."""

        def is_shown() -> bool:
            phase = self._phases.get(uid, "")
            return phase in phases if phases else bool(phase)

        async with asyncio.timeout(SEEN_WITHIN_S):
            while not is_shown():
                self._changed.clear()
                await self._changed.wait()

    async def lag_ms(self) -> float:
        """The median of some changes, from bob's red-box until a watcher sees the status."""
        lags = []
        for _ in range(CHANGES):
            uid = self.uids[self._turn % len(self.uids)]
            runs = self._turn // len(self.uids) % 2 == 0
            self._turn += 1
            began = time.monotonic()
            self.redbox.put(row(uid, self.bob, Phase.RUNNING if runs else Phase.SUSPENDED))
            await self.shows(uid, "Running" if runs else "Suspended")
            lags.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(BETWEEN_S)
        return percentile(lags, 50)

    async def measured(self) -> tuple[dict[str, float], dict[str, float]]:
        """Of each figure: beside the hostile one, and idle."""
        beside, idle = {}, {}
        for manner in MANNERS:
            self.behave("")
            await asyncio.sleep(BEGINS_S)
            idle[figure_of(manner)] = await self.lag_ms()
            self.behave(manner)
            await asyncio.sleep(BEGINS_S)
            beside[figure_of(manner)] = await self.lag_ms()
        return beside, idle


def jobs_of(namespace: str) -> ResourcePath:
    return ResourcePath(SLURM_JOBS, "", namespace)


def row(uid: str, namespace: str, phase: Phase, reason: str | None = None) -> Job:
    owner = OwnerRef(cluster="bed", namespace=namespace, account="default")
    return Job(key=uid, attempt=1, owner=owner, user="bob", phase=phase, job_id="7", reason=reason)


def flood_of(uids: list[str], namespace: str) -> list[str]:
    events = [
        WatchEvent(type="job", revision="e.1", job=row(uid, namespace, phase, "x" * 500))
        for phase in (Phase.RUNNING, Phase.SUSPENDED)
        for uid in uids
    ]
    return [event.model_dump_json(by_alias=True, exclude_none=True) + "\n" for event in events]


@contextmanager
def process(log: Path, *command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Its errors are in the log; it ends with this process, also where that is killed."""
    with (
        log.open("w") as errors,
        subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", *command],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if not environment else errors,
            stderr=errors,
            text=True,
        ) as started,
    ):
        try:
            yield started
        finally:
            started.kill()


@asynccontextmanager
async def tenants(bed: Bed) -> AsyncIterator[Tenants]:
    kubectl, some = Kubernetes(bed), uuid4().hex[:6]
    bob, mallory = BOB + some, MALLORY + some
    await config.load_kube_config(config_file=str(bed.places.kubeconfig))  # type: ignore[no-untyped-call]
    objects = ObjectClient(client.ApiClient(), FIELD_MANAGER)
    kubectl.apply(
        yaml.safe_dump_all([crd for crd in all_crds() if crd["metadata"]["name"].endswith("redbox.dev")])
    )
    redbox = ScriptedRedbox()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with process(folder / "hostile.log", "tests.bench.loads.hostile_endpoint", name) as hostile:
            assert hostile.stdout is not None
            stranger = json.loads(await asyncio.to_thread(hostile.stdout.readline))
            async with redbox.serving(folder):
                own = {"endpoint": redbox.endpoint, "ca": base64.b64encode(redbox.ca).decode()}
                for namespace, server in ((bob, own), (mallory, stranger)):
                    kubectl("create", "namespace", namespace)
                    kubectl(
                        "wait",
                        "--for=create",
                        "serviceaccount/default",
                        f"--namespace={namespace}",
                        "--timeout=30s",
                    )
                    spec = {"endpoint": server["endpoint"], "caBundle": server["ca"]}
                    kubectl.apply(
                        json.dumps(
                            {
                                "apiVersion": API_VERSION,
                                "kind": "SlurmEndpoint",
                                "metadata": {"name": "mine", "namespace": namespace},
                                "spec": spec,
                            }
                        )
                    )
                made = Tenants(objects, redbox, bob, mallory, hostile)
                operator = process(
                    folder / "operator.log",
                    "tests.bench.loads.operator_on_loopback",
                    "run",
                    KUBECONFIG=str(bed.places.kubeconfig),
                    REDBOX_COMPANION_IMAGE="bed.local/pause:1",
                    REDBOX_NAMESPACE=bob,
                    REDBOX_SERVICE_ACCOUNT="default",
                    REDBOX_WATCH_NAMESPACES=f"{bob},{mallory}",
                    REDBOX_HEALTH_PORT=str(HEALTH_PORT),
                )
                watching = asyncio.create_task(made.watch())
                try:
                    with operator as running:
                        await begun(made)
                        yield made
                        assert running.poll() is None, (folder / "operator.log").read_text()[-3000:]
                except BaseException:
                    (Path("build") / "tenants-endpoint.log").write_text((folder / "operator.log").read_text())
                    raise
                finally:
                    watching.cancel()
                    await cleared(objects, kubectl, bob, mallory)
                    await objects.close()


async def begun(made: Tenants) -> None:
    """All SlurmJobs have companions, and bob's their first status."""
    uids = await made.submit(made.mallory, JOBS_OF_MALLORY)
    made.rows = flood_of(uids, made.mallory)
    made.uids = await made.submit(made.bob, JOBS_OF_BOB)
    for uid in made.uids:
        await made.shows(uid)  # of a SlurmJob that it has not seen the operator takes no row
    for uid in made.uids:
        made.redbox.put(row(uid, made.bob, Phase.PENDING))
    for uid in made.uids:
        await made.shows(uid, "Pending")


async def cleared(objects: ObjectClient, kubectl: Kubernetes, *namespaces: str) -> None:
    """No operator is there to lift the finalizers."""
    for namespace in namespaces:
        async for found in objects.list_metadata(jobs_of(namespace)):
            where = ResourcePath(SLURM_JOBS, found.name, namespace)
            await objects.merge(where, {"metadata": {"finalizers": []}})
        kubectl("delete", "namespace", namespace, "--wait=false")


async def measured(bed: Bed) -> tuple[dict[str, float], dict[str, float]]:
    async with tenants(bed) as both:
        return await both.measured()


@benchmark(
    *(
        Figure(
            figure_of(manner),
            f"job changes at bob's red-box -> status, beside a hostile SlurmEndpoint: {manner}",
            "ms",
            Target("ratio", "<=", 2),
        )
        for manner in MANNERS
    ),
    takes_s=180,
    rounds=1,
    warm_up=False,
    baseline_name="the other SlurmEndpoint behaves",
)
@contextmanager
def tenants_endpoint(bed: Bed) -> Iterator[Trial]:
    """Both are measured in turn, in one go."""
    both = asyncio.run(measured(bed))
    yield Trial(
        measure=lambda: both[0],
        baseline=lambda: both[1],
        notes={"slurmjobs of bob": JOBS_OF_BOB, "red-boxes": "scripted"},
    )
