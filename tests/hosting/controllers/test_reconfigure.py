"""A changed configuration: applied, refused or unknown; and partitions that are removed in three steps."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redbox_hosting.api.controller import SlurmController
from redbox_hosting.application import HostingOperator, HostingOptions
from redbox_hosting.build.config.slurm_conf import MARKER
from redbox_hosting.controllers.clusters.certificates import ClusterAuthority
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.configuration import Configurations, WantedConfiguration
from redbox_hosting.controllers.clusters.reconfiguration import REPEATED_AFTER
from redbox_hosting.controllers.clusters.slurm_controllers import SlurmControllers, status_of
from redbox_hosting.controllers.clusters.slurmctld_pod import config_hash_of
from redbox_hosting.controllers.context import DefaultImages, HostingContext, OperatorPods
from redbox_hosting.slurm.answers import RestJob
from redbox_hosting.slurm.errors import NotServed, SlurmRefusal, SlurmUnknown, SlurmUnreachable, TokenRefused
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.steps import StepOutcome
from tests.kube.fakes import FakeApiServer

POD = ResourcePath(kinds.POD, "slurm-controller-0", "hpc")
OLD, NEW = {"slurm.conf": "KillWait=1\n"}, {"slurm.conf": "KillWait=2\n"}


@dataclass
class ScriptedSlurm:
    """What slurmctld runs, and its answer to a reconfigure."""

    runs: str = "old"
    answer: Exception | None = None
    jobs_now: tuple[RestJob, ...] = ()
    asked: list[str] = field(default_factory=list)

    async def licenses(self) -> frozenset[str]:
        return frozenset({MARKER + self.runs})

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

    files: dict[str, str] = field(default_factory=lambda: dict(OLD))
    answers: bool = True

    async def read_files(self, endpoint: str, *_: object) -> dict[str, str]:
        assert endpoint == "https://10.0.0.9:6821"
        if not self.answers:
            raise SlurmUnknown("slurmctld's supervisor does not answer")
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.files.items()}


@dataclass
class Bench:
    """The controller of Controllers with its surroundings, at one Controller."""

    slurm: ScriptedSlurm = field(default_factory=ScriptedSlurm)
    pod: Pod = field(default_factory=Pod)
    clock: FakeClock = field(default_factory=FakeClock)
    api: FakeApiServer = field(default_factory=FakeApiServer)

    def __post_init__(self) -> None:
        self.context = replace(context_at(self.api), clock=self.clock)
        self.controllers = SlurmControllers(self.context)
        self.controllers._reconfigurations.read_files = self.pod.read_files
        authority = ClusterAuthority.make("slurm.hpc", self.clock())
        self.controllers._connections.connect(("hpc", "slurm"), "10.96.0.2", authority, b"key")
        self.api.put(POD, status={"podIP": "10.0.0.9"})

    def world(self) -> ClusterWorld:
        asked_for = controller()
        return ClusterWorld(
            controller=asked_for,
            cell=self.context.cell_of(asked_for),
            configs={"slurm-config-old": OLD},
            daemons={},
            pod=self.api.objects[POD],
            control_ip="10.96.0.2",
            client=self.slurm,  # type: ignore[arg-type]
            running=self.slurm.runs,
            unread="",
            release="24.11.5",
            nodes=0,
            wanted=WantedConfiguration("new", NEW),
            refusal="",
        )

    async def reconfigure(self) -> StepOutcome:
        return await self.controllers._reconfigure(self.world())

    async def project(self, digest: str) -> str:
        """The digest that the kubelet is asked for."""
        await self.controllers._reconfigurations.project(self.api.objects[POD], digest)
        return config_hash_of(self.api.objects[POD])


def context_at(api: FakeApiServer) -> HostingContext:
    images = DefaultImages(slurm="registry.example.org/redbox-slurm:24.11")
    operator = HostingOperator(api.client, HostingOptions(["hpc"], OperatorPods("redbox-system"), images))
    return operator.context


def controller(**spec: Any) -> SlurmController:
    metadata = {"name": "slurm", "namespace": "hpc", "uid": "1"}
    return SlurmController.model_validate({"metadata": metadata, "spec": spec})


async def test_slurmctld_is_asked_once_it_has_the_files_and_is_read_back() -> None:
    bench = Bench()
    assert await bench.project("new") == "new"
    outcome = await bench.reconfigure()
    assert "to project slurm.conf" in outcome.waits_for
    assert bench.slurm.asked == []
    bench.pod.files = dict(NEW)
    assert "new configuration" in (await bench.reconfigure()).waits_for
    bench.slurm.runs = "new"
    assert not (await bench.reconfigure()).waits_for
    assert bench.slurm.asked == ["reconfigure"]


async def test_a_pod_that_has_its_annotation_is_not_written() -> None:
    bench = Bench()
    await bench.project("new")
    before = len(bench.api.requests)
    await bench.project("new")
    assert len(bench.api.requests) == before


async def test_a_request_is_repeated_with_a_pause_while_nothing_is_known() -> None:
    bench = Bench()
    bench.pod.answers = False
    for _ in range(3):
        assert "new configuration" in (await bench.reconfigure()).waits_for
        bench.clock.now += timedelta(seconds=1)
    assert bench.slurm.asked == ["reconfigure"]
    bench.clock.now += REPEATED_AFTER
    await bench.reconfigure()
    assert bench.slurm.asked == ["reconfigure"] * 2


async def test_a_refused_configuration_is_put_back() -> None:
    bench = Bench(ScriptedSlurm(answer=SlurmRefusal("slurm_reconfigure() failed")), Pod(dict(NEW)))
    with pytest.raises(SlurmRefusal):
        await bench.reconfigure()
    assert bench.controllers._mounted(bench.world()) == WantedConfiguration("old", OLD)


@pytest.mark.parametrize("answer", [SlurmUnreachable("HTTP 504"), TokenRefused("HTTP 401"), NotServed("404")])
async def test_what_is_no_refusal_of_the_configuration_never_rolls_it_back(answer: Exception) -> None:
    bench = Bench(ScriptedSlurm(answer=answer), Pod(dict(NEW)))
    with contextlib.suppress(TokenRefused, NotServed):
        assert "504" in (await bench.reconfigure()).waits_for
    assert bench.slurm.asked == ["reconfigure"]
    assert bench.controllers._mounted(bench.world()).digest == "new"


def ready_since(when: datetime, status: str) -> dict[str, Any]:
    since = when.isoformat()
    return {"conditions": [{"type": "Ready", "status": status, "reason": "x", "lastTransitionTime": since}]}


@pytest.mark.parametrize(
    ("status", "minutes", "pause_s"), [("False", 0, 1), ("False", 2, 10), ("True", 2, 1)]
)
async def test_a_slurm_that_is_away_for_long_is_asked_less_often(
    status: str, minutes: int, pause_s: float
) -> None:
    bench = Bench()
    since = ready_since(bench.clock() - timedelta(minutes=minutes), status)
    asked_for = SlurmController.model_validate({**controller().model_dump(by_alias=True), "status": since})
    silent = replace(bench.world(), controller=asked_for, unread="HTTP 502")
    assert (await bench.controllers._reconfigure(silent)).again_in_s == pause_s


async def test_a_partition_goes_once_it_was_seen_to_drain_and_has_no_job() -> None:
    context = context_at(FakeApiServer())
    configurations, slurm = Configurations(context), ScriptedSlurm()
    cell = context.cell_of(controller())
    running = {"job_id": 1, "job_state": ["RUNNING"], "nodes": "w-0", "partition": "old"}

    async def wanted(applied: str, jobs: tuple[RestJob, ...]) -> WantedConfiguration:
        slurm.jobs_now = jobs
        return await configurations.wanted(controller(), cell, {"slurm.conf": applied}, slurm)  # type: ignore[arg-type]

    first = await wanted("PartitionName=old Nodes=w State=UP\n", ())
    assert "PartitionName=old Nodes=w State=DRAIN" in first.files["slurm.conf"]
    busy = await wanted(first.files["slurm.conf"], (RestJob.model_validate(running),))
    assert busy.removing == ("old",)
    assert "State=DRAIN" in busy.files["slurm.conf"]
    gone = await wanted(busy.files["slurm.conf"], ())
    assert not gone.removing
    assert "PartitionName=old" not in gone.files["slurm.conf"]


async def test_a_partition_stays_while_slurm_does_not_answer() -> None:
    context = context_at(FakeApiServer())
    applied = {"slurm.conf": "PartitionName=old Nodes=w State=DRAIN\n"}
    wanted = await Configurations(context).wanted(
        controller(), context.cell_of(controller()), applied, client=None
    )
    assert "PartitionName=old" in wanted.files["slurm.conf"]


async def test_the_version_is_what_slurm_says_and_stays_while_slurm_says_nothing() -> None:
    asked = Bench().world()
    status, _ = status_of(asked, {})
    assert (status.version, status.config_hash, status.nodes) == ("24.11.5", "old", 0)  # type: ignore[attr-defined]
    later = asked.controller.model_copy(update={"status": status})
    silent = replace(asked, controller=later, running="", release="", nodes=None, unread="HTTP 502")
    assert status_of(silent, {})[0] == status
