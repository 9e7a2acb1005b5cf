"""A Slurm in memory behind the operator's client, and a kubelet: what both would do, when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from redbox_hosting.api import names
from redbox_hosting.slurm.answers import RestJob, RestNode, RestReservation
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import BadNodeState, NodesBusy, SlurmrestdError, SlurmUnreachable
from redbox_hosting.slurm.snapshot import has_ended
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from tests.kube.fakes import FakeApiServer

READY_AT, STARTED_AT = "2026-01-01T00:01:00Z", "2026-01-01T00:00:00Z"


@dataclass
class FakeSlurm:
    """Nodes and jobs. `error` is raised instead of each answer."""

    states: dict[str, set[str]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Instance id and address."""
    running: dict[int, RestJob] = field(default_factory=dict)
    error: SlurmrestdError | None = None
    writes: list[tuple[str, str]] = field(default_factory=list)
    read_count: int = 0
    refused: dict[tuple[str, str], SlurmrestdError] = field(default_factory=dict)
    """Raised by these writes to these nodes."""
    before_each_read: Callable[[], object] = lambda: None
    before_each_write: Callable[[], object] = lambda: None
    """What happens just then."""

    asked_at = float("inf")
    """Its answers are never those of before."""

    @property
    def client(self) -> SlurmrestdClient:
        return cast("SlurmrestdClient", self)

    def away(self) -> None:
        self.error = SlurmUnreachable("GET nodes/: HTTP 502: slurmctld does not answer")

    def register(self, name: str, uid: str, address: str) -> None:
        self.states.setdefault(name, {"IDLE"})
        self.owners[name] = uid, address

    def start(self, number: int, node: str, **more: Any) -> None:
        self.running[number] = RestJob.model_validate(
            {"job_id": number, "job_state": ["RUNNING"], "nodes": node, **more}
        )
        self.states[node] = (self.states[node] - {"IDLE"}) | {"ALLOCATED"}

    def end(self, number: int, state: str = "COMPLETED") -> None:
        job = self.running[number]
        self.running[number] = job.model_copy(update={"job_state": frozenset({state})})
        for node in job.nodes:
            self.states[node] = (self.states[node] - {"ALLOCATED"}) | {"IDLE"}

    def jobs_on(self, node: str) -> list[int]:
        return [job.job_id for job in self.running.values() if node in job.nodes and not has_ended(job)]

    # -- as SlurmrestdClient

    async def nodes(self) -> tuple[RestNode, ...]:
        self.read_count += 1
        self._answer()
        self.before_each_read()
        return tuple(self.row(name) for name in self.states)

    async def jobs(self) -> tuple[RestJob, ...]:
        self._answer()
        return tuple(self.running.values())

    async def reservations(self) -> tuple[RestReservation, ...]:
        self._answer()
        return ()

    async def licenses(self) -> frozenset[str]:
        self._answer()
        return frozenset()

    async def drain(self, name: str, reason: str) -> None:
        self._write("drain", name)
        self.states[name].add("DRAIN")
        self.reasons[name] = reason

    async def down(self, name: str, reason: str) -> None:
        self._write("down", name)
        self.states[name] = (self.states[name] - {"IDLE", "ALLOCATED"}) | {"DOWN"}
        self.reasons[name] = reason
        for number, job in self.running.items():
            if name in job.nodes and not has_ended(job):
                update = {"job_state": frozenset({"PENDING"}), "nodes": ()}
                self.running[number] = job.model_copy(update=update)

    async def resume(self, name: str) -> None:
        self._write("resume", name)
        if not self.states[name] & {"DRAIN", "DOWN"}:
            raise BadNodeState("POST node: invalid state", 2028)
        self.states[name] -= {"DRAIN", "DOWN"}
        self.states[name] |= set() if "ALLOCATED" in self.states[name] else {"IDLE"}

    async def delete_node(self, name: str) -> None:
        self._write("delete", name)
        if any(name in job.nodes and not has_ended(job) for job in self.running.values()):
            raise NodesBusy("DELETE node: Requested nodes are busy", 2016)
        del self.states[name]
        self.owners.pop(name, None)

    def row(self, name: str) -> RestNode:
        uid, address = self.owners.get(name, ("", ""))
        return RestNode.model_validate(
            {
                "name": name,
                "state": sorted(self.states[name]),
                "reason": self.reasons.get(name, ""),
                "features": ["w"],
                "instance_id": uid,
                "address": address,
            }
        )

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error

    def _write(self, verb: str, name: str) -> None:
        self._answer()
        self.before_each_write()
        self.writes.append((verb, name))
        if (verb, name) in self.refused:
            raise self.refused[verb, name]


@dataclass
class FakeKubelet:
    """Starts and ends the pods of workers."""

    api: FakeApiServer
    slurm: FakeSlurm
    namespace: str = "hpc"

    def at(self, name: str) -> ResourcePath:
        return ResourcePath(kinds.POD, name, self.namespace)

    def start_all(self) -> None:
        for body in self.api.of_kind("Pod"):
            if not body.get("status") and names.LABEL_NODE_SET in body["metadata"]["labels"]:
                self.start(body["metadata"]["name"])

    def start(self, name: str) -> None:
        body = self.api.objects[self.at(name)]
        address = f"10.0.0.{len(self.slurm.owners) + 1}"
        status = {
            "phase": "Running",
            "podIP": address,
            "startTime": STARTED_AT,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": READY_AT}],
            "containerStatuses": [{"name": "slurmd", "restartCount": 0, "state": {"running": {}}}],
        }
        self.put(name, status=status, spec={**body["spec"], "nodeName": _wanted_node(body)})
        self.slurm.register(name, body["metadata"]["uid"], address)

    def fail_to_start(self, name: str, reason: str = "ImagePullBackOff") -> None:
        waiting = {"reason": reason, "message": "no such image"}
        status = {
            "phase": "Pending",
            "startTime": STARTED_AT,
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": STARTED_AT}],
            "containerStatuses": [{"name": "slurmd", "restartCount": 0, "state": {"waiting": waiting}}],
        }
        self.put(name, status=status)

    def put(self, name: str, **fields: Any) -> None:
        body = self.api.objects[self.at(name)]
        self.api.put(self.at(name), {**body, **fields})

    def annotate(self, name: str, **annotations: str | None) -> None:
        """By the names in `names`, as condemned=..."""
        body = self.api.objects[self.at(name)]
        given = {f"{names.GROUP}/{key.replace('_', '-')}": value for key, value in annotations.items()}
        merged = {**body["metadata"].get("annotations", {}), **given}
        kept = {key: value for key, value in merged.items() if value is not None}
        self.put(name, metadata={**body["metadata"], "annotations": kept})

    def conditions(self, name: str) -> dict[str, Object]:
        body = self.api.objects[self.at(name)]
        return {each["type"]: each for each in body.get("status", {}).get("conditions") or []}


def _wanted_node(pod: Object) -> str:
    """The only Kubernetes node in its affinity; of another pod always the same one."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity")
    if not affinity:
        return "k1"
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])
