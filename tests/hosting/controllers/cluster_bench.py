"""One Controller with its surroundings: a Slurm that answers as a test says, its pod, and a clock."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.application import HostingOperator, HostingOptions
from redbox_hosting.build.config.slurm_conf import MARKER, cluster_files
from redbox_hosting.controllers.clusters.certificates import ClusterAuthority
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.configuration import WantedConfiguration
from redbox_hosting.controllers.clusters.slurm_controllers import SlurmControllers
from redbox_hosting.controllers.clusters.slurmctld_pod import config_hash_of
from redbox_hosting.controllers.context import DefaultImages, HostingContext, OperatorPods
from redbox_hosting.slurm.answers import RestJob, RestNode
from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_hosting.slurm.supervisor import SupervisedSlurmctld, SupervisorStatus
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.steps import StepOutcome
from tests.hosting.factories import inputs
from tests.kube.fakes import FakeApiServer

POD = ResourcePath(kinds.POD, "slurm-controller-0", "hpc")
OLD, NEW = (cluster_files(inputs({"extraConf": f"KillWait={seconds}"})) for seconds in (1, 2))


@dataclass
class ScriptedSlurm:
    """What slurmctld runs, and its answer to a reconfigure."""

    runs: str = OLD.digest
    answer: Exception | None = None
    jobs_now: tuple[RestJob, ...] = ()
    nodes_now: tuple[RestNode, ...] = ()
    asked: list[str] = field(default_factory=list)

    async def licenses(self) -> frozenset[str]:
        return frozenset({MARKER + self.runs})

    async def nodes(self) -> tuple[RestNode, ...]:
        return self.nodes_now

    async def jobs(self) -> tuple[RestJob, ...]:
        return self.jobs_now

    async def reconfigure(self) -> None:
        self.asked.append("reconfigure")
        if self.answer:
            raise self.answer


@dataclass
class FakeClock:
    """Passed to the context."""

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Pod:
    """slurmctld's pod: the files that the kubelet has projected, and whether its supervisor answers."""

    files: dict[str, str] = field(default_factory=lambda: dict(OLD.files))
    answers: bool = True
    keys: dict[str, str] = field(default_factory=dict)
    """The sha256 of those that slurmctld has read."""

    async def read_status(self, endpoint: str, *_: object) -> SupervisorStatus:
        assert endpoint == "https://10.0.0.9:6821"
        if not self.answers:
            raise SlurmUnknown("slurmctld's supervisor does not answer")
        files = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.files.items()}
        return SupervisorStatus(files=files, daemon=SupervisedSlurmctld(keys=self.keys))


class ApiServerWithLog(FakeApiServer):
    """Has the log of slurmctld, unless it is None."""

    log: str | None = None

    async def answer(self, method: str, path: str, **_: object) -> bytes:
        assert (method, path) == ("GET", "/api/v1/namespaces/hpc/pods/slurm-controller-0/log")
        if self.log is None:
            raise ApiRefused(HTTPStatus.FORBIDDEN, "pods/log is forbidden")
        return self.log.encode()


@dataclass
class Bench:
    """The controller of Controllers with its surroundings, at one Controller."""

    slurm: ScriptedSlurm = field(default_factory=ScriptedSlurm)
    pod: Pod = field(default_factory=Pod)
    clock: FakeClock = field(default_factory=FakeClock)
    api: ApiServerWithLog = field(default_factory=ApiServerWithLog)

    def __post_init__(self) -> None:
        self.context = replace(context_at(self.api), clock=self.clock)
        self.controllers = SlurmControllers(self.context)
        self.controllers._reconfigurations.read_status = self.pod.read_status
        authority = ClusterAuthority.make("slurm.hpc", self.clock())
        self.controllers._connections.connect(("hpc", "slurm"), "10.96.0.2", authority, (b"key",))
        for each in (OLD, NEW):
            if record(each.digest) not in self.api.objects:
                self.put_record(each.digest, each.files)
        if POD not in self.api.objects:
            self.api.put(POD, status={"podIP": "10.0.0.9"})

    def put_record(self, digest: str, files: Mapping[str, str]) -> None:
        """As the operator does, and as anybody may who writes ConfigMaps."""
        owner = controller().owner_reference(names.CONTROLLERS)
        tried = {names.ANNOTATION_TRIED: "accepted"}
        metadata = {"ownerReferences": [owner], "annotations": tried}
        self.api.put(record(digest), data=dict(files), metadata=metadata)

    def world(self, asked_for: SlurmController | None = None) -> ClusterWorld:
        asked_for = asked_for or controller()
        return ClusterWorld(
            controller=asked_for,
            cell=self.context.cell_of(asked_for),
            configs=self.records(),
            daemons={},
            pod=self.api.objects[POD],
            trials={},
            control_ip="10.96.0.2",
            client=self.slurm,  # type: ignore[arg-type]
            running=self.slurm.runs,
            unread=None,
            release="24.11.5",
            nodes=0,
            oldest_slurmd=None,
            wanted=WantedConfiguration(NEW.digest, dict(NEW.files)),
            refusal="",
        )

    def records(self) -> dict[str, Object]:
        """From the API server: the refusal is remembered there."""
        return {body["metadata"]["name"]: body for body in self.api.of_kind("ConfigMap")}

    async def reconfigure(self) -> StepOutcome:
        return await self.controllers._reconfigure(self.world())

    async def project(self, digest: str) -> str:
        """The digest that the kubelet is asked for."""
        await self.controllers._reconfigurations.project(self.api.objects[POD], digest)
        return config_hash_of(self.api.objects[POD])


def record(digest: str) -> ResourcePath:
    return ResourcePath(kinds.CONFIG_MAP, f"slurm-config-{digest}", "hpc")


def context_at(api: FakeApiServer) -> HostingContext:
    images = DefaultImages(slurm="registry.example.org/redbox-slurm:24.11")
    operator = HostingOperator(api.client, HostingOptions(["hpc"], OperatorPods("redbox-system"), images))
    return operator.context


def controller(**spec: Any) -> SlurmController:
    metadata = {"name": "slurm", "namespace": "hpc", "uid": "1"}
    return SlurmController.model_validate({"metadata": metadata, "spec": spec})
