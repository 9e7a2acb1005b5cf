"""The operator with 10,000 SlurmJobs.

The API server is real. red-box is simulated, and the companions are pods without a kubelet.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import yaml
from kubernetes.aio import client, config

from redbox_api.models import Job, OwnerRef, Phase
from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes
from redbox_clusters.names import API_VERSION, LABEL_ATTEMPT, LABEL_JOB_UID, SLURM_JOBS
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_kube.runtime.clock import now
from redbox_operator.api.constants import FIELD_MANAGER, FINALIZER
from redbox_operator.api.crds import all_crds
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import CompanionStatus, SlurmJobStatus
from redbox_operator.slurmjob.attempts import Attempt
from redbox_operator.slurmjob.status import StatusInputs, status_of
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target, percentile
from tests.bench.scripted_redbox import ScriptedRedbox

MANY = int(os.environ.get("SLURMJOBS", str(sized(10_000, 300))))
FRESH = sized(50, 10)
CHANGES = sized(200, 50)
CHANGES_S = sized(60.0, 15.0)
IDLE_S = float(os.environ.get("IDLE_SECONDS", str(sized(120, 20))))
SETTLES_WITHIN_S = 600.0
AT_ONCE = 24
CLUSTER = "scale"
NODE = "scale-without-kubelet"
PREFIX = "scale-"
HEALTH_PORT = 18089
WRITES = "writes to the API server for a job's life, with events"
SCRIPT = "#!/bin/bash\n" + "# as long as scripts are\n" * 40 + "srun ./model\n"


@dataclass
class Scale:
    """Everything that there is in the API server, and the operator that looks at it."""

    objects: ObjectClient
    redbox: ScriptedRedbox
    namespace: str
    kubeconfig: Path
    folder: Path
    seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    _operator: subprocess.Popen[bytes] | None = None

    # -- what there is

    async def fill(self, count: int) -> None:
        free = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with free:
                await self._running_job(f"old-{number}", number)

        for begin in range(0, count, 500):
            await asyncio.gather(*(one(number) for number in range(begin, min(begin + 500, count))))

    async def _running_job(self, name: str, number: int) -> None:
        """A SlurmJob as the operator left it while its job runs: with companion and status."""
        made = await self.submit(name, finalizers=[FINALIZER])
        uid = made["metadata"]["uid"]
        pod = await self.objects.create(
            ResourcePath(kinds.POD, namespace=self.namespace), self._pod(name, uid)
        )
        assert pod is not None
        row = self.row(uid, Phase.RUNNING, number)
        self.redbox.put(row)
        facts = StatusInputs(
            job=SlurmJob.model_validate(made),
            before=SlurmJobStatus(),
            cluster=CLUSTER,
            attempt=Attempt(1, 0),
            row=row,
            final_message=None,
            pod_problem=None,
            companion=CompanionStatus(name=f"{name}-job", uid=pod["metadata"]["uid"], attempt=1),
            problem=None,
            now=now(),
        )
        await self.objects.apply_status(self._where(name), status_of(facts).written(), uid=uid)

    async def submit(self, name: str, finalizers: list[str] | None = None) -> Object:
        body = {
            "apiVersion": API_VERSION,
            "kind": "SlurmJob",
            "metadata": {"name": name, "namespace": self.namespace, "finalizers": finalizers or []},
            "spec": {"cluster": CLUSTER, "batch": SCRIPT},
        }
        made = await self.objects.create(self._where(""), body)
        assert made is not None
        return made

    def row(self, uid: str, phase: Phase, number: int) -> Job:
        owner = OwnerRef(cluster="bed", namespace=self.namespace, account="default")
        return Job(
            key=uid,
            attempt=1,
            owner=owner,
            user="alice",
            phase=phase,
            state="RUNNING" if phase is Phase.RUNNING else "COMPLETED",
            job_id=str(number),
            partition="debug",
            nodes=[f"n{number % 500}"],
            exit_code=0 if phase is Phase.SUCCEEDED else None,
            started_at=datetime.now(UTC),
            working_directory=f"/home/alice/redbox/{self.namespace}/{number}",
        )

    def _pod(self, name: str, uid: str) -> Object:
        owner = {"apiVersion": API_VERSION, "kind": "SlurmJob", "name": name, "uid": uid, "controller": True}
        container = {"name": "companion", "image": "bed.local/pause:1", "resources": {}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-job",
                "namespace": self.namespace,
                "labels": {LABEL_JOB_UID: uid, LABEL_ATTEMPT: "1"},
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": NODE,
                "containers": [container],
                "tolerations": [{"operator": "Exists"}],
            },
        }

    def _where(self, name: str) -> ResourcePath:
        return ResourcePath(SLURM_JOBS, name, self.namespace)

    # -- the operator

    def start(self) -> None:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "REDBOX_COMPANION_IMAGE": "bed.local/pause:1",
            "REDBOX_NAMESPACE": self.namespace,
            "REDBOX_SERVICE_ACCOUNT": "default",
            "REDBOX_WATCH_NAMESPACES": self.namespace,
            "REDBOX_HEALTH_PORT": str(HEALTH_PORT),
        }
        # It goes with this process, also where that is killed: it listens on a port that the next one needs.
        command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "redbox_operator", "run"]
        with (self.folder / "operator.log").open("wb") as log:
            self._operator = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._operator is not None:
            self._operator.terminate()
            try:
                self._operator.wait(30)
            except subprocess.TimeoutExpired:
                self._operator.kill()

    @property
    def pid(self) -> int:
        assert self._operator is not None
        assert self._operator.poll() is None, (self.folder / "operator.log").read_text()[-3000:]
        return self._operator.pid

    def memory_mib(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def metrics(self) -> dict[str, float]:
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://127.0.0.1:{HEALTH_PORT}/metrics")).text
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    async def writes(self) -> float:
        return sum(
            value
            for name, value in (await self.metrics()).items()
            if name.startswith("redbox_operator_writes_total")
        )

    async def settled(self) -> None:
        """Ready, nothing left to look at, and nothing written any more."""
        before = -1.0
        async with asyncio.timeout(SETTLES_WITHIN_S):
            while True:
                await asyncio.sleep(3)
                try:
                    ready = await self._ready()
                    writes = await self.writes() if ready else -1.0
                except httpx.HTTPError:
                    continue
                if ready and writes == before:
                    return
                before = writes

    async def _ready(self) -> bool:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{HEALTH_PORT}/readyz")).is_success

    # -- lag

    async def watch(self) -> None:
        """When each SlurmJob was seen to have its phase."""
        where = self._where("")
        _, version = [page async for page in self.objects.pages(where)][-1]
        while True:
            async for event in self.objects.watch(where, version):
                version = event["object"]["metadata"]["resourceVersion"]
                phase = event["object"].get("status", {}).get("phase")
                name = event["object"]["metadata"].get("name")
                if phase and name and self.seen.get(name, ("", 0.0))[0] != phase:
                    self.seen[name] = (phase, time.monotonic())

    async def lags(self, uids: Mapping[str, str]) -> list[float]:
        """From a change at red-box to the status that a watcher sees."""
        changed: dict[str, float] = {}
        watching = asyncio.create_task(self.watch())
        await asyncio.sleep(5)
        for name, uid in uids.items():
            changed[name] = time.monotonic()
            self.redbox.put(self.row(uid, Phase.SUCCEEDED, int(name.partition("-")[2])))
            await asyncio.sleep(CHANGES_S / CHANGES)
        async with asyncio.timeout(120):
            while any(self.seen.get(name, ("",))[0] != "Succeeded" for name in changed):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        watching.cancel()
        return [self.seen[name][1] - at for name, at in changed.items()]

    async def uids(self) -> dict[str, str]:
        found = {}
        async for job in self.objects.list_metadata(self._where("")):
            found[job.name] = job.uid
        return found

    async def whole_lives(self) -> float:
        """Writes for each job from its creation to its end, companion included."""
        before = await self.writes()
        made = [await self.submit(f"new-{number}") for number in range(FRESH)]
        for phase in (Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED):
            await self.settled()
            for number, one in enumerate(made):
                self.redbox.put(self.row(one["metadata"]["uid"], phase, MANY + number))
        await self.settled()
        return (await self.writes() - before) / FRESH


@asynccontextmanager
async def scale(bed: Bed) -> AsyncIterator[Scale]:
    kubectl = Kubernetes(bed)
    namespace = f"{PREFIX}{uuid4().hex[:6]}"
    await config.load_kube_config(config_file=str(bed.places.kubeconfig))  # type: ignore[no-untyped-call]
    objects = ObjectClient(client.ApiClient(), FIELD_MANAGER)
    kubectl.apply(
        yaml.safe_dump_all([crd for crd in all_crds() if crd["metadata"]["name"].endswith("redbox.dev")])
    )
    await _clear(kubectl, objects)
    kubectl("create", "namespace", namespace)
    kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={namespace}", "--timeout=30s")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {"unschedulable": True}}
    kubectl.apply(json.dumps(node))
    redbox = ScriptedRedbox()
    with tempfile.TemporaryDirectory() as folder:
        made = Scale(objects, redbox, namespace, bed.places.kubeconfig, Path(folder))
        async with redbox.serving(Path(folder)):
            spec = {
                "endpoint": redbox.endpoint,
                "caBundle": base64.b64encode(redbox.ca).decode(),
                "audience": f"redbox.dev/{CLUSTER}/bench",
            }
            cluster = {
                "apiVersion": API_VERSION,
                "kind": "SlurmCluster",
                "metadata": {"name": CLUSTER},
                "spec": spec,
            }
            kubectl.apply(json.dumps(cluster))
            try:
                yield made
            finally:
                made.stop()
                await _clear(kubectl, objects)
                await objects.close()
                kubectl(
                    "patch", "slurmcluster", CLUSTER, "--type=merge", '--patch={"metadata":{"finalizers":[]}}'
                )
                kubectl("delete", "slurmcluster", CLUSTER, "--wait=false")
                kubectl("delete", "node", NODE)


async def _clear(kubectl: Kubernetes, objects: ObjectClient) -> None:
    """Delete what this one has made, and what others that were killed have: a burden for all that follow.

    No operator is there to lift the finalizers.
    """
    free = asyncio.Semaphore(AT_ONCE)

    async def lift(namespace: str, name: str) -> None:
        async with free:
            where = ResourcePath(SLURM_JOBS, name, namespace)
            await objects.merge(where, {"metadata": {"finalizers": []}})

    names = kubectl("get", "namespaces", "--output=jsonpath={.items[*].metadata.name}").split()
    for namespace in (name for name in names if name.startswith(PREFIX)):
        kubectl("delete", "namespace", namespace, "--wait=false")
        async with asyncio.TaskGroup() as group:
            async for found in objects.list_metadata(ResourcePath(SLURM_JOBS, "", namespace)):
                group.create_task(lift(namespace, found.name))


async def measured(bed: Bed) -> dict[str, float]:
    async with scale(bed) as all_of_it:
        await all_of_it.fill(MANY)
        all_of_it.start()
        await all_of_it.settled()
        cpu = all_of_it.cpu_s()
        await asyncio.sleep(IDLE_S)
        idle = (all_of_it.cpu_s() - cpu) / IDLE_S * 100
        memory = all_of_it.memory_mib()
        uids = await all_of_it.uids()
        chosen = random.Random(7).sample(sorted(uids), CHANGES)
        lags = await all_of_it.lags({name: uids[name] for name in chosen})
        writes = await all_of_it.whole_lives()
        return {
            "operator-memory": max(memory, all_of_it.memory_mib()),
            "operator-idle": idle,
            "operator-lag-p50": percentile(lags, 50),
            "operator-lag-p99": percentile(lags, 99),
            "operator-writes": writes,
        }


@benchmark(
    Figure(
        "operator-memory",
        "resident memory",
        "MiB",
        Target("value", "<=", 250),
    ),
    Figure(
        "operator-idle",
        "CPU while nothing changes",
        "% CPU",
        Target("value", "<=", 2),
    ),
    Figure("operator-lag-p50", "change at red-box -> status, 200 a minute: median", "s"),
    Figure(
        "operator-lag-p99",
        "change at red-box -> status, 200 a minute: 99th percentile",
        "s",
        Target("value", "<=", 2),
    ),
    Figure("operator-writes", WRITES, "writes", Target("value", "<=", 6)),
    takes_s=600,
    rounds=1,
)
@contextmanager
def ten_thousand_slurmjobs(bed: Bed) -> Iterator[Trial]:
    notes: dict[str, Any] = {"slurmjobs": MANY, "companions": "pods bound to no node", "red-box": "scripted"}

    @functools.cache
    def measure() -> dict[str, float]:
        """Once: a round takes ten minutes, and the process that is measured is new in each."""
        return asyncio.run(measured(bed))

    yield Trial(measure=measure, notes=notes)
