"""SlurmJobs on virtual nodes, many at once: the operator's part, and when each is seen to be in Slurm."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.aio import client, config

from redbox_clusters.names import SLURM_JOBS
from redbox_kube.api import kinds
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from tests.e2e.harness.virtual_delivery import CLUSTER, TOLERATIONS

NAMESPACE = "alice"
API = "redbox.dev/v1alpha1"
GIVES_UP_S = 600.0


@dataclass
class VirtualJobs:
    """Makes SlurmJobs with their companions, and watches the pods."""

    objects: ObjectClient
    request: Object
    spec: Object = field(default_factory=dict)
    """More for the pods: a nodeName, where the scheduler is not to be measured."""
    submitted: dict[str, float] = field(default_factory=dict)
    _seen: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, names: list[str], *, at_once: int) -> dict[str, float]:
        """Make all of them; the seconds from each one's first request to the watch that shows its job."""
        begun: dict[str, float] = {}
        free = asyncio.Semaphore(at_once)

        async def make(name: str) -> None:
            async with free:
                begun[name] = time.perf_counter()
                await self._make(name)

        _, version = [
            page async for page in self.objects.pages(ResourcePath(kinds.POD, namespace=NAMESPACE))
        ][-1]
        watching = asyncio.create_task(self._watch(version))
        try:
            await asyncio.gather(*map(make, names))
            async with asyncio.timeout(GIVES_UP_S):
                while not self.submitted.keys() >= set(names):
                    self._seen.clear()
                    await self._seen.wait()
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        return {name: self.submitted[name] - begun[name] for name in names}

    async def _watch(self, version: str) -> None:
        async for event in self.objects.watch(ResourcePath(kinds.POD, namespace=NAMESPACE), version):
            conditions = event["object"].get("status", {}).get("conditions", [])
            if any("Slurm job" in one.get("message", "") for one in conditions):
                name = event["object"]["metadata"]["name"].removesuffix("-job")
                self.submitted.setdefault(name, time.perf_counter())
                self._seen.set()

    async def _make(self, name: str) -> None:
        where = ResourcePath(SLURM_JOBS, namespace=NAMESPACE)
        spec = {"cluster": CLUSTER, "batch": self.request["batch"]}
        job = {"apiVersion": API, "kind": "SlurmJob", "metadata": {"name": name}, "spec": spec}
        made = await self.objects.create(where, job)
        assert made is not None, f"there is a SlurmJob {name} already"
        owner = {"apiVersion": API, "kind": "SlurmJob", "name": name, "controller": True}
        metadata = {
            "name": f"{name}-job",
            "namespace": NAMESPACE,
            "ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}],
            "labels": {"bench": "virtual"},
        }
        body = json.dumps({**self.request, "name": name})
        await self._create(kinds.CONFIG_MAP, metadata, data={"request.json": body}, immutable=True)
        container = {"name": "companion", "image": "bed.local/nowhere:1"}
        node = self.spec or {"nodeSelector": {"redbox.dev/cluster": CLUSTER, "redbox.dev/partition": "debug"}}
        pod_spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": TOLERATIONS,
            "containers": [container],
            **node,
        }
        pod = await self._create(kinds.POD, metadata, spec=pod_spec)
        companion = {
            "name": f"{name}-job",
            "uid": pod["metadata"]["uid"],
            "attempt": 1,
            "request": f"sha256:{hashlib.sha256(body.encode()).hexdigest()}",
        }
        at = ResourcePath(SLURM_JOBS, name, NAMESPACE)
        await self.objects.merge(at, {"status": {"companion": companion}}, subresource="status")

    async def _create(self, kind: Kind, metadata: Object, **rest: Any) -> Object:
        where = ResourcePath(kind, namespace=NAMESPACE)
        body = {"apiVersion": "v1", "kind": kind.name, "metadata": metadata, **rest}
        made = await self.objects.create(where, body)
        assert made is not None
        return made


@asynccontextmanager
async def administrator(kubeconfig: Path) -> AsyncIterator[ObjectClient]:
    """The API server, asked as the cluster's administrator."""
    await config.load_kube_config(config_file=str(kubeconfig))  # type: ignore[no-untyped-call]
    objects = ObjectClient(client.ApiClient(), "bench")
    try:
        yield objects
    finally:
        await objects.close()
