"""A changed configuration: applied, refused or unknown; and partitions that are removed in three steps."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.controllers.clusters.configuration import (
    Configurations,
    WantedConfiguration,
    partition_lines_of,
)
from redbox_hosting.controllers.clusters.controller_status import status_of
from redbox_hosting.controllers.clusters.reconfiguration import PROJECTED_WITHIN, REPEATED_AFTER
from redbox_hosting.slurm.answers import RestJob
from redbox_hosting.slurm.errors import NotServed, SlurmRefusal, SlurmUnreachable, TokenRefused
from redbox_kube.api.informer import Place
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.steps import StepFailed
from tests.hosting.controllers.cluster_bench import (
    NEW,
    OLD,
    POD,
    Bench,
    Pod,
    ScriptedSlurm,
    context_at,
    controller,
    record,
)
from tests.kube.fakes import FakeApiServer


async def test_slurmctld_is_asked_once_it_has_the_files_and_is_read_back() -> None:
    bench = Bench()
    assert await bench.project(NEW.digest) == NEW.digest
    outcome = await bench.reconfigure()
    assert "to project slurm.conf" in outcome.waits_for
    assert bench.slurm.asked == []
    bench.pod.files = dict(NEW.files)
    assert "new configuration" in (await bench.reconfigure()).waits_for
    bench.slurm.runs = NEW.digest
    assert not (await bench.reconfigure()).waits_for
    assert bench.slurm.asked == ["reconfigure"]


async def test_a_kubelet_that_has_projected_the_files_of_before_is_asked_again() -> None:
    """It may see the pod's annotation before the ConfigMap, and projects by itself once a minute."""
    bench = Bench()
    await bench.reconfigure()
    before = bench.api.objects[POD]
    bench.clock.now += PROJECTED_WITHIN / 2
    await bench.reconfigure()
    assert bench.api.objects[POD] == before
    for _ in range(2):
        bench.clock.now += PROJECTED_WITHIN
        await bench.reconfigure()
        told = bench.api.objects[POD]["metadata"]["annotations"][names.ANNOTATION_PROJECT_AGAIN]
        assert told == bench.clock.now.isoformat()


async def test_a_pod_that_has_its_annotation_is_not_written() -> None:
    bench = Bench()
    await bench.project(NEW.digest)
    before = len(bench.api.requests)
    await bench.project(NEW.digest)
    assert len(bench.api.requests) == before


@pytest.mark.parametrize("pod", [Pod(answers=False), Pod(files={})])
async def test_a_request_is_repeated_with_a_pause_while_nothing_is_known(pod: Pod) -> None:
    bench = Bench(pod=pod)
    for _ in range(3):
        assert "new configuration" in (await bench.reconfigure()).waits_for
        bench.clock.now += timedelta(seconds=1)
    assert bench.slurm.asked == ["reconfigure"]
    bench.clock.now += REPEATED_AFTER
    await bench.reconfigure()
    assert bench.slurm.asked == ["reconfigure"] * 2


def refused() -> Bench:
    return Bench(ScriptedSlurm(answer=SlurmRefusal("slurm_reconfigure() failed")), Pod(dict(NEW.files)))


async def test_a_refused_configuration_is_put_back_and_not_tried_again_after_a_restart() -> None:
    bench = refused()
    with pytest.raises(StepFailed):
        await bench.reconfigure()
    assert bench.world().mounted == WantedConfiguration(OLD.digest, dict(OLD.files))
    bench.slurm.answer, bench.pod.files = None, dict(OLD.files)
    restarted = Bench(bench.slurm, bench.pod, bench.clock, bench.api)
    await restarted.reconfigure()
    assert not (await restarted.reconfigure()).waits_for
    assert bench.slurm.asked == ["reconfigure"] * 2
    with pytest.raises(
        StepFailed, match=r"slurm_reconfigure\(\) failed.*delete ConfigMap slurm-config-" + NEW.digest
    ):
        await restarted.controllers._apply_configuration(restarted.world())


async def test_the_refusal_has_the_words_of_slurmctlds_log() -> None:
    bench = refused()
    bench.api.log = "[t] error: bad key Foo\n[t] fatal: no configuration\n[t] error: reconfigure failed\n"
    words = "Slurm refused the configuration: error: bad key Foo; fatal: no configuration"
    with pytest.raises(StepFailed, match=words):
        await bench.reconfigure()
    with pytest.raises(StepFailed, match=words):
        await bench.controllers._apply_configuration(bench.world())


async def test_a_refusal_is_none_where_slurmctld_runs_something_else_by_now() -> None:
    bench = refused()
    before = bench.world()
    bench.slurm.runs = "third"
    with pytest.raises(SlurmRefusal):
        await bench.controllers._reconfigure(before)
    assert not bench.world().refused(NEW.digest)


async def test_after_a_refusal_slurmctld_reads_the_files_of_before_for_new_workers() -> None:
    bench = refused()
    with pytest.raises(StepFailed):
        await bench.reconfigure()
    restarted = Bench(bench.slurm, bench.pod, bench.clock, bench.api)
    assert "to project slurm.conf" in (await restarted.reconfigure()).waits_for
    bench.pod.files = dict(OLD.files)
    bench.slurm.answer = SlurmUnreachable("HTTP 504")
    assert "504" in (await restarted.reconfigure()).waits_for
    bench.slurm.answer = None
    bench.clock.now += REPEATED_AFTER
    assert (await restarted.reconfigure()).waits_for
    assert not (await restarted.reconfigure()).waits_for
    assert bench.slurm.asked == ["reconfigure"] * 3


async def test_it_is_tried_again_once_its_record_was_deleted() -> None:
    bench = refused()
    with pytest.raises(StepFailed):
        await bench.reconfigure()
    bench.api.remove(record(NEW.digest))
    assert bench.world().on_trial == NEW.digest


async def test_without_the_files_of_before_nothing_is_put_back() -> None:
    bench = refused()
    bench.api.remove(record(OLD.digest))
    with pytest.raises(StepFailed):
        await bench.reconfigure()
    assert bench.world().mounted.digest == NEW.digest


@pytest.mark.parametrize(
    "forged",
    [
        {"slurm.conf": "Prolog=evil\n", "evil": "#!/bin/sh\n"},
        {**OLD.files, "evil": "#!/bin/sh\n"},
        {**OLD.files, "slurm.conf": "Prolog=evil\n" + OLD.files["slurm.conf"]},
        {**OLD.files, "slurm.conf": OLD.files["slurm.conf"].replace(OLD.digest, NEW.digest)},
        dict(NEW.files),
    ],
)
async def test_files_that_somebody_else_has_written_are_never_put_back(forged: dict[str, str]) -> None:
    bench = refused()
    with pytest.raises(StepFailed):
        await bench.reconfigure()
    assert bench.world().mounted.digest == OLD.digest
    bench.put_record(OLD.digest, forged)
    assert bench.world().mounted.digest == NEW.digest


def test_of_partitions_before_only_what_we_may_have_written_is_kept() -> None:
    line = "PartitionName=p Nodes=w Alternate=x OverSubscribe=EXCLUSIVE OverSubscribe=FORCE:8 State=UP"
    (kept,) = partition_lines_of({"slurm.conf": f"{line}\n"})
    assert str(kept) == "PartitionName=p Nodes=w OverSubscribe=EXCLUSIVE State=UP"


async def test_what_slurmctld_ran_before_is_never_refused() -> None:
    bench = Bench(ScriptedSlurm(runs=NEW.digest))
    await bench.controllers._reconfigurations.refuse(bench.world(), NEW.digest, "fatal: no space left")
    assert not bench.world().refused(NEW.digest)


@pytest.mark.parametrize("answer", [SlurmUnreachable("HTTP 504"), TokenRefused("HTTP 401"), NotServed("404")])
async def test_what_is_no_refusal_of_the_configuration_never_rolls_it_back(answer: Exception) -> None:
    bench = Bench(ScriptedSlurm(answer=answer), Pod(dict(NEW.files)))
    with contextlib.suppress(TokenRefused, NotServed):
        assert "504" in (await bench.reconfigure()).waits_for
    assert bench.slurm.asked == ["reconfigure"]
    assert bench.world().mounted.digest == NEW.digest


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
    silent = replace(bench.world(), controller=asked_for, unread=SlurmUnreachable("HTTP 502"))
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
    assert (status.version, status.config_hash, status.nodes) == ("24.11.5", OLD.digest, 0)  # type: ignore[attr-defined]
    later = asked.controller.model_copy(update={"status": status})
    silent = replace(
        asked, controller=later, running="", release="", nodes=None, unread=SlurmUnreachable("HTTP 502")
    )
    assert status_of(silent, {})[0] == status


async def test_the_status_of_a_node_set_begins_no_reconciliation() -> None:
    bench = Bench()
    handled: list[Place] = []

    async def handle(place: Place) -> None:
        handled.append(place)

    def put(name: str, cluster: str, **more: Any) -> None:
        spec = {"controllerRef": {"name": cluster}}
        where = ResourcePath(names.NODE_SETS, name, "hpc")
        bench.api.put(where, metadata={"uid": name, "generation": 1}, spec=spec, **more)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(bench.context.watches.node_sets.run()),
            group.create_task(bench.controllers.controller.queue.run(handle, workers=1)),
        ]
        put("w", "slurm")
        while handled != [("hpc", "slurm")]:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.005)
        put("w", "slurm", status={"replicas": 3})
        put("x", "other")
        while ("hpc", "other") not in handled:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for task in tasks:
            task.cancel()
    assert handled.count(("hpc", "slurm")) == 1
