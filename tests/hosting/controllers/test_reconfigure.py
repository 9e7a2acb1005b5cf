"""A changed configuration: applied, refused or unknown; and partitions that are removed in three steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.application import HostingOperator, HostingOptions
from redbox_hosting.build.config.slurm_conf import MARKER
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld
from redbox_hosting.controllers.clusters.configuration import Configurations, WantedConfiguration
from redbox_hosting.controllers.clusters.slurm_controllers import SlurmControllers, status_of
from redbox_hosting.controllers.context import DefaultImages, HostingContext, OperatorPods
from redbox_hosting.slurm.answers import RestJob
from redbox_hosting.slurm.errors import SlurmRefusal, SlurmUnreachable
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from tests.kube.fakes import FakeApiServer

POD = ResourcePath(kinds.POD, "slurm-controller-0", "hpc")
OLD = {"slurm.conf": "KillWait=1\n"}


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


def context_at(api: FakeApiServer) -> HostingContext:
    images = DefaultImages(slurm="registry.example.org/redbox-slurm:24.11")
    operator = HostingOperator(api.client, HostingOptions(["hpc"], OperatorPods("redbox-system"), images))
    return operator.context


def controller(**spec: Any) -> SlurmController:
    metadata = {"name": "slurm", "namespace": "hpc", "uid": "1"}
    return SlurmController.model_validate({"metadata": metadata, "spec": spec})


def world(context: HostingContext, slurm: ScriptedSlurm) -> ClusterWorld:
    asked_for = controller()
    return ClusterWorld(
        controller=asked_for,
        cell=context.cell_of(asked_for),
        configs={"slurm-config-old": OLD},
        daemons={},
        control_ip="10.96.0.2",
        client=slurm,  # type: ignore[arg-type]
        running=slurm.runs,
        unread="",
        release="24.11.5",
        nodes=0,
        wanted=WantedConfiguration("new", {"slurm.conf": "KillWait=2\n"}),
        refusal="",
    )


async def test_a_change_is_projected_read_and_read_back() -> None:
    api, slurm = FakeApiServer(), ScriptedSlurm()
    controllers = SlurmControllers(context_at(api))
    api.put(POD)
    outcome = await controllers._reconfigure(world(controllers.context, slurm))
    assert "new configuration" in outcome.waits_for
    assert api.objects[POD]["metadata"]["annotations"] == {names.ANNOTATION_CONFIG_HASH: "new"}
    slurm.runs = "new"
    assert not (await controllers._reconfigure(world(controllers.context, slurm))).waits_for
    assert slurm.asked == ["reconfigure"]


async def test_a_refused_configuration_is_put_back() -> None:
    api, slurm = FakeApiServer(), ScriptedSlurm(answer=SlurmRefusal("slurm_reconfigure() failed"))
    controllers = SlurmControllers(context_at(api))
    api.put(POD)
    with pytest.raises(SlurmRefusal):
        await controllers._reconfigure(world(controllers.context, slurm))
    assert controllers._mounted(world(controllers.context, slurm)) == WantedConfiguration("old", OLD)


async def test_an_unknown_outcome_is_asked_again_and_never_rolled_back() -> None:
    api, slurm = FakeApiServer(), ScriptedSlurm(answer=SlurmUnreachable("HTTP 504"))
    controllers = SlurmControllers(context_at(api))
    api.put(POD)
    outcome = await controllers._reconfigure(world(controllers.context, slurm))
    assert "504" in outcome.waits_for
    assert controllers._mounted(world(controllers.context, slurm)).digest == "new"


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
    asked = world(context_at(FakeApiServer()), ScriptedSlurm())
    status, _ = status_of(asked, {})
    assert (status.version, status.config_hash, status.nodes) == ("24.11.5", "old", 0)  # type: ignore[attr-defined]
    later = asked.controller.model_copy(update={"status": status})
    silent = replace(asked, controller=later, running="", release="", nodes=None, unread="HTTP 502")
    assert status_of(silent, {})[0] == status
