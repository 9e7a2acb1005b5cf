"""resourced's updater, an API server in memory, and a red-box that takes updates."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from redbox_api.errors import NotAccepted, RedboxError
from redbox_api.models import Job, Phase, Problem
from redbox_api.pod_parts import PodUpdate
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods.pod_references import values_of
from redbox_resourced.pods.pod_request import PodRequests, inputs_of
from redbox_resourced.pods.pod_view import BoundPod, read_pod
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.pods.updates.updater import PodUpdater
from redbox_resourced.translation.references import PodReferences
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster
from tests.resourced.pods.factories import manifest, pod_job

SETTINGS = {"enabled": True, "apiTokens": True, "apiServer": "https://api:6443"}


def path(kind: str, name: str) -> ResourcePath:
    return ResourcePath(kinds.SECRET if kind == "secret" else kinds.CONFIG_MAP, name, "alice")


def config(name: str = "c", **more: Any) -> Object:
    return {"name": f"v-{name}", "configMap": {"name": name, **more}}


class Life:
    """Of pods in one namespace."""

    def __init__(self, token_namespaces: Collection[str] = ("alice",)) -> None:
        self.api = FakeApiServer()
        self.now = 1_000_000.0
        self.updates: list[tuple[str, PodUpdate]] = []
        self.refusal: RedboxError | None = None
        self.refused_volume = ""
        self.hung = ""
        """The node whose red-box does not answer."""
        self.waiting = 0
        self.jobs: dict[str, Job] = {}
        self.cluster = slurm_cluster(pods=SETTINGS)
        names = ("hpc1", "hpc2")
        self.connections = {
            f"{name}.debug": ClusterConnection(slurm_cluster(name, pods=SETTINGS), cast("Any", None))
            for name in names
        }
        clusters = cast("ClusterRegistry", SimpleNamespace(of_node=lambda node: self.connections[node]))
        requests = PodRequests(self.api.client, cast("Any", None))
        submitter = cast("PodSubmitter", SimpleNamespace(update=self._update, made=requests.made))
        self.updater = PodUpdater(
            self.api.client, clusters, submitter, ("alice",), token_namespaces, now=lambda: self.now
        )

    async def _update(self, pod: BoundPod, _: ClusterConnection, update: PodUpdate) -> Job:
        if self.refusal is not None:
            raise self.refusal
        if self.refused_volume in {source.volume for source in update.sources}:
            raise NotAccepted(problem("Its files are too many"))
        if pod.node == self.hung:
            self.waiting += 1
            await asyncio.Event().wait()
        self.updates.append((pod.name, update))
        self.jobs[pod.name] = self.jobs[pod.name].model_copy(update={"pod_inputs": update.inputs})
        return self.jobs[pod.name]

    def put(self, name: str, kind: str = "configMap", *, immutable: bool = False, **data: str) -> None:
        values = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        body = {"data": values if kind == "secret" else data, **({"immutable": True} if immutable else {})}
        self.api.put(path(kind, name), body)

    def submit(self, *volumes: Object, name: str = "train", tokens: bool = False, **spec: Any) -> None:
        """A pod whose job was submitted with what there is now."""
        body = self.pod(*volumes, name=name, **spec)
        found = {where: values_of(each) for where, each in self.api.objects.items() if "data" in each}
        references = PodReferences(
            secrets={where.name: each for where, each in found.items() if where.kind is kinds.SECRET},
            config_maps={where.name: each for where, each in found.items() if where.kind is kinds.CONFIG_MAP},
        )
        inputs = str(inputs_of(body, references, {"": "t"} if tokens else {}))
        self.jobs[name] = pod_job(Phase.RUNNING, pod_inputs=inputs)
        self.show(name)

    def pod(self, *volumes: Object, name: str = "train", **spec: Any) -> Object:
        metadata = {"name": name, "uid": f"uid-{name}", "labels": {"a": "1"}}
        body = manifest(metadata=metadata, volumes=list(volumes), **spec)
        self.api.put(ResourcePath(kinds.POD, name, "alice"), body)
        return body

    def change_pod(self, name: str = "train", *, labels: dict[str, str] | None = None, **spec: Any) -> None:
        where = ResourcePath(kinds.POD, name, "alice")
        body = self.api.objects[where]
        metadata = {**body["metadata"], **({"labels": labels} if labels else {})}
        self.api.put(where, {**body, "metadata": metadata, "spec": {**body["spec"], **spec}})
        self.show(name)

    def delete(self, name: str = "train") -> None:
        self.updater.pod_deleted(read_pod(self.api.objects[ResourcePath(kinds.POD, name, "alice")]))

    def show(self, name: str = "train") -> None:
        pod = read_pod(self.api.objects[ResourcePath(kinds.POD, name, "alice")])
        self.updater.pod_shown(pod, self.jobs[name], self.cluster)

    def reads(self, kind: str) -> int:
        return self.api.asked.count(f"get {kind}")

    @property
    def sent(self) -> list[dict[str, str]]:
        """The files of each update."""
        return [
            {file.path: bytes(file.content).decode() for source in each.sources for file in source.files}
            for _, each in self.updates
        ]

    async def quiet(self) -> None:
        """Until everything that is due was done."""
        for _ in range(10):
            await asyncio.sleep(0.02)
            await until(lambda: not self.updater.queue.unfinished)


def problem(detail: str) -> Problem:
    return Problem(type="about:blank", title="No", status=422, detail=detail)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(life: Life) -> AsyncIterator[Life]:
    task = asyncio.create_task(life.updater.run())
    try:
        await life.quiet()
        yield life
    finally:
        task.cancel()
        await asyncio.wait({task})
