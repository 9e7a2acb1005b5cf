"""Kubernetes and Slurm clusters of many workers: pods are ready as soon as they are made, nodes are idle.

`python -m tests.bench.many.world FOLDER NAMESPACES WORKERS` writes FOLDER/kubeconfig and prints a line. Each
line of its standard input is JSON, `do` and its arguments; each is answered by a line.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redbox.server.certificates import issue_server, make_authority
from redbox_hosting.api import names
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from tests.bench.many.api_server import ManyObjects, now, serving
from tests.bench.many.slurmrestd import SimulatedSlurm

CLUSTER, WORKERS = "slurm", "w"
LIMITS = {"cpu": "4", "memory": "8Gi"}
EACH_HEARTBEAT_S = 300.0
"""How often a kubelet writes the status of a Node in which nothing changes."""
WITHIN_S = 300.0
PAUSE_S = 5.0
"""Between two changes: the operator reads Slurm again after each of its writes."""
ROLLED_OUT = frozenset({kinds.DEPLOYMENT, kinds.STATEFUL_SET})


@dataclass
class Cell:
    """One namespace with its cluster."""

    namespace: str
    address: str
    """Of its slurmrestd."""
    slurm: SimulatedSlurm
    server: asyncio.Server | None = None

    def at(self, kind: kinds.Kind, name: str) -> ResourcePath:
        return ResourcePath(kind, name, self.namespace)


@dataclass
class World:
    """All clusters."""

    cells: dict[str, Cell] = field(default_factory=dict)
    written_nodes: set[str] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.objects = ManyObjects(self._written)

    def add(self, number: int, workers: int) -> None:
        namespace = f"hpc-{number}"
        cell = Cell(namespace, f"127.1.{number // 250}.{number % 250 + 1}", SimulatedSlurm(lambda: ""))
        cell.slurm.digest = lambda: self._digest(cell)
        cell.slurm.written = self.written_nodes.add
        self.cells[namespace] = cell
        self.objects.put(ResourcePath(kinds.NAMESPACE, namespace))
        self.objects.put(cell.at(names.CONTROLLERS, CLUSTER), {"spec": {}})
        spec = {
            "controllerRef": {"name": CLUSTER},
            "replicas": workers,
            "slurmd": {"resources": {"limits": LIMITS}},
            "partition": {"enabled": True},
        }
        self.objects.put(cell.at(names.NODE_SETS, WORKERS), {"spec": spec})

    async def beat(self) -> None:
        """As the kubelets of all Nodes."""
        number = 0
        while True:
            nodes = self._nodes()
            await asyncio.sleep(EACH_HEARTBEAT_S / max(len(nodes), 1))
            number += 1
            if nodes:
                where = nodes[number % len(nodes)]
                self.objects.put(where, self.objects.objects[where], status=node_status())

    def _nodes(self) -> list[ResourcePath]:
        return [where for where in self.objects.objects if where.kind == kinds.NODE]

    # -- what Kubernetes and its kubelets do after a write

    def _written(self, where: ResourcePath, body: Object) -> None:
        cell = self.cells.get(where.namespace)
        if cell is None:
            return
        if where.kind in ROLLED_OUT:
            self._roll_out(where, body)
        elif where == cell.at(kinds.SERVICE, names.control_name(CLUSTER)):
            if "clusterIP" not in body["spec"]:
                self.objects.put(where, body, spec={**body["spec"], "clusterIP": cell.address})
        elif where == cell.at(kinds.SECRET, names.tls_name(names.control_name(CLUSTER))):
            if cell.server is None:
                self._start(self._serve(cell, body))
        elif where.kind == kinds.POD and "status" not in body:
            self._run(cell, where, body)

    def _roll_out(self, where: ResourcePath, body: Object) -> None:
        generation = body["metadata"]["generation"]
        if (body.get("status") or {}).get("observedGeneration") != generation:
            count = body["spec"].get("replicas", 1)
            status = {"observedGeneration": generation, "updatedReplicas": count, "readyReplicas": count}
            self.objects.put(where, body, status=status)

    async def _serve(self, cell: Cell, secret: Object) -> None:
        files = {name: base64.b64decode(text) for name, text in secret["data"].items()}
        cell.server = await cell.slurm.serve(cell.address, names.PORT_CONTROL, files)

    def _run(self, cell: Cell, where: ResourcePath, body: Object) -> None:
        number = len(cell.slurm.nodes)
        address = f"10.{len(self.cells) % 250}.{number // 250}.{number % 250}"
        machine = ResourcePath(kinds.NODE, f"{cell.namespace}-{where.name}")
        self.objects.put(machine, {"spec": {}, "status": node_status()})
        self.objects.put(
            where, body, spec={**body["spec"], "nodeName": machine.name}, status=pod_status(address)
        )
        cell.slurm.register(where.name, body["metadata"]["uid"], address)

    def _start(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _digest(self, cell: Cell) -> str:
        mounted = self.objects.objects.get(cell.at(kinds.CONFIG_MAP, names.mounted_config_name(CLUSTER)), {})
        annotations = mounted.get("metadata", {}).get("annotations") or {}
        return str(annotations.get(names.ANNOTATION_CONFIG_HASH, ""))

    # -- what the benchmark asks for

    async def settle(self) -> dict[str, Any]:
        """All clusters are as they should be."""
        await self._until(lambda: all(map(self._is_settled, self.cells.values())))
        return {}

    def _is_settled(self, cell: Cell) -> bool:
        body = self.objects.objects[cell.at(names.NODE_SETS, WORKERS)]
        controller = self.objects.objects[cell.at(names.CONTROLLERS, CLUSTER)]
        status = body.get("status") or {}
        is_available = status.get("availableReplicas") == body["spec"]["replicas"] == len(cell.slurm.nodes)
        return (
            is_available
            and condition(body, "Progressing") == "False"
            and condition(controller, "Ready") == "True"
        )

    async def occupy(self, share: float) -> dict[str, Any]:
        """A job on so many of the nodes."""
        for cell in self.cells.values():
            for name in list(cell.slurm.nodes)[: int(len(cell.slurm.nodes) * share)]:
                cell.slurm.run_a_job_on(name)
        return {}

    async def grow(self) -> dict[str, Any]:
        """Seconds from one worker more being asked for to its pod, and to the status of it."""
        cell = next(iter(self.cells.values()))
        where = cell.at(names.NODE_SETS, WORKERS)
        before = self.objects.objects[where]
        count = before["spec"]["replicas"] + 1
        generation = int(before["metadata"]["generation"]) + 1
        pods = len(cell.slurm.nodes)
        began = time.perf_counter()
        metadata = {**before["metadata"], "generation": generation}
        self.objects.put(where, before, metadata=metadata, spec={**before["spec"], "replicas": count})
        await self._until(lambda: len(cell.slurm.nodes) > pods)
        made = time.perf_counter() - began
        await self._until(
            lambda: self.objects.objects[where]["status"].get("observedGeneration") == generation
        )
        return {"pod": made, "status": time.perf_counter() - began}

    async def cordon(self) -> dict[str, Any]:
        """Seconds from the annotation `pod-cordon` of a worker to the DRAIN of its node."""
        await asyncio.sleep(PAUSE_S)
        cell = next(iter(self.cells.values()))
        name = next(reversed(cell.slurm.nodes))
        where = cell.at(kinds.POD, name)
        began = time.perf_counter()
        self._annotate(where, "bench")
        await self._until(lambda: "DRAIN" in cell.slurm.nodes[name]["state"])
        took = time.perf_counter() - began
        self._annotate(where, None)
        await self._until(lambda: "DRAIN" not in cell.slurm.nodes[name]["state"])
        return {"drain": took}

    def _annotate(self, where: ResourcePath, reason: str | None) -> None:
        body = self.objects.objects[where]
        annotations = {**body["metadata"].get("annotations", {}), names.ANNOTATION_CORDON: reason}
        kept = {key: value for key, value in annotations.items() if value is not None}
        self.objects.put(where, body, metadata={**body["metadata"], "annotations": kept})

    async def count(self) -> dict[str, Any]:
        """Requests so far: to the API server, and to all slurmrestd."""
        rpcs: Counter[str] = sum((cell.slurm.counts for cell in self.cells.values()), Counter())
        return {"api": dict(self.objects.counts), "rpcs": dict(rpcs)}

    async def _until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not holds():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.002)


def node_status() -> Object:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"conditions": [{**ready, "lastHeartbeatTime": now()}]}


def pod_status(address: str) -> Object:
    """As a kubelet has it; it was ready a moment after its start."""
    started, ready = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
    kinds_of_conditions = (
        "PodReadyToStartContainers",
        "Initialized",
        "ContainersReady",
        "PodScheduled",
        "Ready",
    )
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": started,
        "conditions": [
            {"type": each, "status": "True", "lastTransitionTime": ready} for each in kinds_of_conditions
        ],
        "containerStatuses": [
            {"name": "slurmd", "restartCount": 0, "ready": True, "state": {"running": {"startedAt": started}}}
        ],
    }


def condition(body: Object, name: str) -> str:
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((str(each["status"]) for each in conditions if each["type"] == name), "")


async def main(folder: Path, namespaces: int, workers: int) -> None:
    world = World()
    for number in range(namespaces):
        world.add(number, workers)
    authority = make_authority("many", datetime.now(UTC))
    pair = issue_server(authority, [], ["127.0.0.1"], datetime.now(UTC))
    certificate = folder / "api-server.pem"
    certificate.write_bytes(pair.key + pair.certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with serving(world.objects, tls) as port, asyncio.TaskGroup() as group:
        (folder / "kubeconfig").write_text(kubeconfig(port, authority.certificate))
        heart = group.create_task(world.beat())
        print(json.dumps({"namespaces": list(world.cells)}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            answer = await getattr(world, asked.pop("do"))(**asked)
            print(json.dumps(answer), flush=True)
        heart.cancel()


def kubeconfig(port: int, authority: bytes) -> str:
    server = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    context = {"cluster": "many", "user": "many"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "many", "cluster": server}],
            "users": [{"name": "many", "user": {"token": "none"}}],
            "contexts": [{"name": "many", "context": context}],
            "current-context": "many",
        }
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
