"""resourced with 200 virtual nodes and 10,000 pods of SlurmJobs."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from redbox.server.certificates import issue_server, make_authority
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.delivery import TENANTS
from redbox_clusters.names import SLURM_JOBS
from redbox_clusters.virtual_pods import SUBMITTED
from redbox_kube.api import kinds
from redbox_kube.api.metadata_list import ObjectMetadata
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from tests.bench.benchmark import Trial, benchmark
from tests.bench.effort import sized
from tests.bench.rows import Figure, Target
from tests.bench.virtual_jobs import administrator
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.virtual_delivery import TOLERATIONS, InBed, install

CLUSTER = "scale"
PORT = 11443
NODES = sized(200, 20)
PODS = int(os.environ.get("PODS", str(sized(10_000, 500))))
ATTEMPTS = 50
KEYS = -(-PODS // ATTEMPTS)
IDLE_S = float(os.environ.get("IDLE_SECONDS", str(sized(60, 15))))
STANDS_STILL_S = 180.0
QUIET_S = 15.0  # it looks at all nodes every ten
PROGRESS_STEP = 1000
AT_ONCE = 32
API = "redbox.dev/v1alpha1"
ALICE = TENANTS[0]
LABEL = "bench=scale"
PODS_OF_ALICE = ResourcePath(kinds.POD, namespace=ALICE)


@dataclass
class Scale:
    """The scripted red-box, resourced, and what is in Kubernetes."""

    bed: Bed
    folder: Path
    resourced: InBed
    redbox: subprocess.Popen[bytes] | None = None

    @property
    def kubernetes(self) -> Kubernetes:
        return Kubernetes(self.bed)

    def begin(self) -> None:
        """SlurmJobs for keys, red-box with their jobs, nodes; then the pods, which a new resourced finds."""
        keys = asyncio.run(self._slurm_jobs())
        self.redbox = self._redbox(keys)
        self.resourced.start()
        reaches("virtual nodes", self._nodes, NODES)
        self.resourced.stop()
        asyncio.run(self._pods(keys))
        self.resourced.start()
        reaches("pods running", self._running, PODS)

    def _nodes(self) -> int:
        return len(self._versions())

    def _running(self) -> int:
        selection = {"labelSelector": LABEL, "fieldSelector": "status.phase=Running"}
        return len(self._list(PODS_OF_ALICE, selection))

    def _list(self, where: ResourcePath, selection: Mapping[str, str]) -> list[ObjectMetadata]:
        """The metadata of what is selected."""

        async def listed() -> list[ObjectMetadata]:
            async with administrator(self.bed.places.kubeconfig) as objects:
                return [one async for one in objects.list_metadata(where, selection)]

        return asyncio.run(listed())

    def submits(self) -> int:
        url = f"https://{self.resourced.address}:{PORT}/submits"
        asked = [*self.resourced.entering(), "curl", "-sk", url]
        return int(subprocess.run(asked, capture_output=True, check=True, timeout=30).stdout)

    def adopt(self) -> float:
        """Kill -9 and start: seconds until it serves, all pods known."""
        self.resourced.kill()
        started = time.perf_counter()
        self.resourced.start()
        reaches("pods known again", self._known, PODS, every_s=0.5)
        return time.perf_counter() - started

    def settles(self) -> None:
        """Nothing more is written of the nodes: a new process says once of each what it knows."""
        versions, moved_at = self._versions(), time.monotonic()
        while time.monotonic() - moved_at < QUIET_S:
            time.sleep(2)
            if (now := self._versions()) != versions:
                versions, moved_at = now, time.monotonic()
        say("nodes settled")

    def _versions(self) -> frozenset[str]:
        found = self._list(ResourcePath(kinds.NODE), {"labelSelector": "redbox.dev/virtual"})
        return frozenset(one.resource_version for one in found)

    def _known(self) -> int:
        try:
            raw = self.kubernetes("get", "--raw", f"/api/v1/nodes/{CLUSTER}.p000/proxy/pods")
        except BedError:  # its certificate is taken a moment after it serves
            return 0
        return sum(pod["status"]["phase"] == "Running" for pod in json.loads(raw)["items"])

    def end(self) -> None:
        self.resourced.stop()
        if self.redbox is not None:
            self.redbox.kill()
            self.redbox.wait()
        self.kubernetes("delete", "slurmcluster", CLUSTER, "--ignore-not-found", "--wait=false")
        reaches("pods deleted", self._deleted, PODS)
        self._delete(f"/apis/{API}/namespaces/{ALICE}/slurmjobs?labelSelector={LABEL}")
        self._delete("/api/v1/nodes?labelSelector=redbox.dev/virtual")

    def _deleted(self) -> int:
        """One request for all that are left: each by itself takes kubectl minutes."""
        with contextlib.suppress(BedError):  # the API server gives no request more than a minute
            self._delete(f"/api/v1/namespaces/{ALICE}/pods?labelSelector={LABEL}&gracePeriodSeconds=0")
        return PODS - len(self._list(PODS_OF_ALICE, {"labelSelector": LABEL}))

    def _delete(self, url: str) -> None:
        self.kubernetes("delete", "--raw", url)

    def _redbox(self, keys: list[str], *, of_pods: bool = False) -> subprocess.Popen[bytes]:
        authority = make_authority(CLUSTER, datetime.now(UTC))
        pair = issue_server(authority, [], [self.resourced.address], datetime.now(UTC))
        certificate, settings = self.folder / "redbox.pem", self.folder / "redbox.json"
        certificate.write_bytes(pair.key + pair.certificate)
        said = {
            "certificate": str(certificate),
            "address": self.resourced.address,
            "port": PORT,
            "partitions": NODES,
            "keys": keys,
            "attempts": 1 if of_pods else ATTEMPTS,
            "of_pods": of_pods,
        }
        settings.write_text(json.dumps(said))
        spec = {
            "endpoint": f"https://{self.resourced.address}:{PORT}",
            "caBundle": base64.b64encode(authority.certificate).decode(),
            "audience": "redbox.dev/scale/bench",
            "delivery": "Virtual",
            "pods": {"enabled": of_pods},
        }
        kind = {"apiVersion": API, "kind": "SlurmCluster", "metadata": {"name": CLUSTER}}
        self.kubernetes.apply(json.dumps({**kind, "spec": spec}))
        command = [*self.resourced.entering(), sys.executable, "-m", "tests.bench.virtual_redbox"]
        with (self.folder / "redbox.log").open("wb") as log:
            return subprocess.Popen([*command, str(settings)], stdout=log, stderr=log)

    async def _slurm_jobs(self) -> list[str]:
        async with administrator(self.bed.places.kubeconfig) as objects:
            where = ResourcePath(SLURM_JOBS, namespace=ALICE)
            keys = []
            for number in range(KEYS):
                metadata = {"name": f"scale-{number}", "labels": {"bench": "scale"}}
                spec = {"cluster": CLUSTER, "batch": "#!/bin/sh\ntrue\n", "suspend": True}
                body = {"apiVersion": API, "kind": "SlurmJob", "metadata": metadata, "spec": spec}
                made = await objects.create(where, body)
                assert made is not None
                keys.append(str(made["metadata"]["uid"]))
            return keys

    async def _pods(self, keys: list[str]) -> None:
        free = asyncio.Semaphore(AT_ONCE)
        async with administrator(self.bed.places.kubeconfig) as objects, asyncio.TaskGroup() as group:
            made = [group.create_task(_pod(objects, free, number, keys)) for number in range(PODS)]
            for done, pod in enumerate(made, start=1):
                await pod
                if done % PROGRESS_STEP == 0:
                    say(f"{done} of {PODS} pods made")


def reaches(what: str, count: Callable[[], int], wanted: int, *, every_s: float = 2.0) -> None:
    """However slow the machine is: only what stands still has failed."""
    most, moved_at = -1, time.monotonic()
    while (now := count()) < wanted:
        if now > most:
            say(f"{now} of {wanted} {what}")
            most, moved_at = now, time.monotonic()
        standing = time.monotonic() - moved_at
        assert standing < STANDS_STILL_S, f"{most} of {wanted} {what}, and no more since {standing:.0f} s"
        time.sleep(every_s)
    say(f"{now} of {wanted} {what}")


def say(progress: str) -> None:
    """Ten thousand pods take minutes."""
    print(f"  {time.strftime('%H:%M:%S')} {progress}", file=sys.stderr, flush=True)


async def _pod(objects: ObjectClient, free: asyncio.Semaphore, number: int, keys: list[str]) -> None:
    """Bound, and known as a companion that was submitted, as resourced finds them after a restart."""
    job, attempt = divmod(number, ATTEMPTS)
    name = f"scale-{job}-job-{attempt + 1}"
    owner = {"apiVersion": API, "kind": "SlurmJob", "name": f"scale-{job}", "uid": keys[job]}
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"bench": "scale"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "nodeName": f"{CLUSTER}.p{number % NODES:03}",
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": TOLERATIONS,
            "containers": [
                {
                    "name": "companion",
                    "image": "bed.local/nowhere:1",
                    "env": [{"name": "REDBOX_ATTEMPT", "value": str(attempt + 1)}],
                }
            ],
        },
    }
    async with free:
        await objects.create(ResourcePath(kinds.POD, namespace=ALICE), body)
        condition = {"type": SUBMITTED, "status": "True"}
        where = ResourcePath(kinds.POD, name, ALICE)
        await objects.merge(where, {"status": {"conditions": [condition]}}, subresource="status")


@benchmark(
    Figure(
        "virtual-scale-memory",
        "resident memory",
        "MiB",
        Target("value", "<=", 300),
    ),
    Figure("virtual-scale-cpu", "idle CPU, of one core", "%", Target("value", "<=", 5)),
    Figure("virtual-scale-adopt", "kill -9 -> restarted, with all pods and jobs", "s"),
    Figure("virtual-scale-submits", "jobs submitted again after the kill", "jobs", Target("value", "<=", 0)),
    takes_s=600,
    rounds=2,
)
@contextmanager
def virtual_scale(bed: Bed) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        resourced = InBed(bed, Path(folder), (f"--most-nodes={NODES}",))
        scale = Scale(bed, Path(folder), resourced)
        install(Kubernetes(bed), bed)
        try:
            scale.begin()
            before = float(scale.submits())  # the pods say that they are submitted: none is due
            yield Trial(lambda: measure(scale), notes={"redbox": "scripted", "submits-before": before})
        except Exception as error:
            raise RuntimeError(f"{error!r}; resourced's log ends with {resourced.log[-1000:]}") from error
        finally:
            scale.end()


def measure(scale: Scale) -> Mapping[str, float]:
    submitted = scale.submits()
    adopted = scale.adopt()
    scale.settles()
    before = processor_seconds(scale.resourced.pid)
    time.sleep(IDLE_S)
    used = processor_seconds(scale.resourced.pid) - before
    return {
        "virtual-scale-memory": resident(scale.resourced.pid),
        "virtual-scale-cpu": 100 * used / IDLE_S,
        "virtual-scale-adopt": adopted,
        "virtual-scale-submits": float(scale.submits() - submitted),
    }


def resident(pid: int) -> float:
    """MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
