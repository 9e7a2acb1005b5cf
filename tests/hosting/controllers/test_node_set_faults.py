"""Faults around a worker: none of them ends a job, and none stops the other workers."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from redbox_hosting.api import names
from redbox_hosting.controllers import slurm_snapshots
from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.controllers.workers import worker_observer
from redbox_hosting.controllers.workers.acts.for_each import AT_ONCE, for_each
from redbox_hosting.slurm.answers import RestJob, RestReservation
from redbox_hosting.slurm.errors import NodesBusy, SlurmUnknown
from redbox_kube.api import kinds
from redbox_kube.api.lease import ANNOTATION_FORMAT
from redbox_kube.api.objects import ApiRefused, ApiUnreachable, ResourcePath
from tests.hosting.controllers.fake_slurm import FakeSlurm
from tests.hosting.controllers.node_set_bench import (
    BUDGET,
    NAMESPACE,
    WORKERS,
    NodeSetBench,
    bench,
    operator,
)

LEASE = ResourcePath(kinds.LEASE, "redbox-hosting", "hpc")


# ------------------------------------------------------------------------------------ one bad worker
async def test_a_pod_that_refuses_its_mark_stops_no_other(it: NodeSetBench) -> None:
    await it.up(3)
    it.api.fail(ApiRefused(403, "denied by a policy"), verb="merge", kind="Pod", name="w-2")
    it.scale(0)
    await it.has(lambda: it.pods == ["w-2"])
    await it.has(lambda: "denied by a policy" in it.condition("Condemned").get("message", ""))
    it.api.recover()
    await it.has(lambda: it.pods == [])


async def test_a_name_that_is_taken_stops_no_other(it: NodeSetBench) -> None:
    it.api.put(it.kubelet.at("w-0"), spec={}, metadata={"labels": {}})
    it.scale(3)
    await it.has(lambda: it.pods == ["w-0", "w-1", "w-2"])
    await it.has(lambda: "does not belong to NodeSet w" in it.condition("Workers").get("message", ""))


async def test_a_node_whose_drain_fails_stops_no_other(it: NodeSetBench) -> None:
    await it.up(3)
    it.slurm.refused["drain", "w-2"] = SlurmUnknown("POST node/w-2: no answer within 5 s")
    it.scale(0)
    await it.has(lambda: it.pods == ["w-2"])
    await it.settled()
    assert it.pods == ["w-2"]
    await it.has(lambda: "no answer within 5 s" in it.condition("Nodes").get("message", ""))


async def test_a_pod_whose_condition_cannot_be_written_stops_no_other(it: NodeSetBench) -> None:
    await it.up(2)
    it.api.fail(ApiRefused(500, "broken"), verb="apply", kind="Pod", name="w-0")
    for name in it.pods:
        it.slurm.states[name].add("DRAIN")
        it.slurm.reasons[name] = "bad disk"
    await it.has(lambda: names.CONDITION_DRAINING in it.kubelet.conditions("w-1"))
    await it.has(lambda: it.condition("PodConditions").get("message") == "broken")


async def test_where_nobody_answers_the_rest_is_left_for_later() -> None:
    asked: list[int] = []

    async def act(number: int) -> None:
        asked.append(number)
        raise SlurmUnknown("no answer")

    answers = await for_each(range(100), act)
    assert len(asked) == AT_ONCE
    assert len(answers.failed) == AT_ONCE


async def test_a_defect_of_one_stops_no_other() -> None:
    async def act(number: int) -> int:
        return 6 // number

    answers = await for_each([1, 0, 2], act)
    assert sorted(result for _, result in answers.done) == [3, 6]
    assert [item for item, _ in answers.failed] == [0]


# ------------------------------------------------------------------------------------ the API server
async def test_the_api_server_away_at_the_deletion_leaves_a_protected_worker_or_none() -> None:
    async with bench(runs=False) as it:
        async with operator(it.api, it.slurm):
            await it.up(1)
            it.api.fail(ApiUnreachable("the API server does not answer"), verb="delete", kind="Pod")
            it.scale(0)
            await it.has(lambda: "delete Pod" in it.api.asked)
        it.slurm.states["w-0"].discard("DRAIN")  # somebody else's RESUME, and a job at once
        it.slurm.start(7, "w-0")
        it.api.recover()
        async with operator(it.api, it.slurm):
            await it.has(lambda: names.LABEL_PROTECTED in it.pod("w-0")["metadata"]["labels"])
            await it.settled()
            assert it.pods == ["w-0"]
            it.slurm.end(7)
            await it.has(lambda: it.pods == [])
    assert it.api.deletions == [("w-0", [])]


async def test_no_worker_is_made_under_a_budget_that_allows_evictions(it: NodeSetBench) -> None:
    good = it.api.objects[BUDGET]["spec"]
    it.api.put(BUDGET, spec={**good, "minAvailable": 0})
    it.scale(1)
    await it.has(lambda: "allows evictions" in it.condition("Workers").get("message", ""))
    assert it.pods == []
    it.api.put(BUDGET, spec=good)
    await it.has(lambda: it.pods == ["w-0"])


# ------------------------------------------------------------------------------------ the Lease
async def test_an_operator_of_an_older_format_makes_pods_and_ends_none() -> None:
    async with bench(runs=False) as it:
        async with operator(it.api, it.slurm):
            await it.up(2)
        lease = it.api.objects[LEASE]
        lease["metadata"].setdefault("annotations", {})[ANNOTATION_FORMAT] = "2"
        it.slurm.writes.clear()
        async with operator(it.api, it.slurm):
            it.scale(3, extra_conf_of_a_later_release=1)
            await it.has(lambda: it.pods == ["w-0", "w-1", "w-2"])
            it.scale(0)
            await it.has(lambda: "newer release" in it.condition("Authority").get("message", ""))
            await it.settled()
            assert it.slurm.writes == []
            assert it.pods == ["w-0", "w-1", "w-2"]
            for name in it.pods:
                assert it.pod(name)["metadata"]["labels"][names.LABEL_PROTECTED] == "true"
                assert names.ANNOTATION_CONDEMNED not in it.pod(name)["metadata"]["annotations"]


async def test_a_lease_that_is_lost_between_two_writes_ends_them() -> None:
    async with bench(runs=False) as it, operator(it.api, it.slurm) as leases:
        await it.up(3)
        it.slurm.before_each_write = leases._held.clear
        it.scale(0)
        await it.has(lambda: not leases.may_write("hpc"))
        await it.settled()
        assert len(it.slurm.writes) == 1
        assert it.pods == ["w-0", "w-1", "w-2"]


# ------------------------------------------------------------------------------------ Slurm
async def test_a_drain_that_an_administrator_set_a_moment_ago_keeps_its_reason(
    it: NodeSetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await it.up(1)
    monkeypatch.setattr(slurm_snapshots, "IDLE_S", 60.0)  # the snapshot is old
    await it.settled(1)
    it.slurm.states["w-0"].add("DRAIN")
    it.slurm.reasons["w-0"] = "bad disk"
    it.kubelet.annotate("w-0", pod_cordon="firmware")
    await it.has(lambda: it.slurm.read_count >= 3)
    assert it.slurm.reasons["w-0"] == "bad disk"
    assert it.slurm.writes == []


async def test_a_record_that_slurm_keeps_keeps_no_worker_away(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.refused["delete", "w-1"] = NodesBusy("DELETE node/w-1: Requested nodes are busy", 2016)
    it.scale(1)
    await it.has(lambda: "Requested nodes are busy" in it.condition("Records").get("message", ""))
    it.scale(2)
    await it.has(lambda: it.pods == ["w-0", "w-1"])


async def test_a_record_is_kept_for_a_job_that_has_just_asked_for_it(it: NodeSetBench) -> None:
    await it.up(2)
    reads: list[int] = []

    def asks() -> None:
        """After the read by which the worker went, and its record is due."""
        if "w-1" not in it.pods:
            reads.append(1)
            it.slurm.start(9, "w-0", required_nodes="w-1")

    it.slurm.before_each_read = asks
    it.scale(1)
    await it.has(lambda: len(reads) > 4)
    assert "w-1" in it.slurm.states


async def test_a_slurmctld_that_takes_longer_than_an_answer_is_fresh_stops_no_scale_in(
    it: NodeSetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await it.up(2)
    monkeypatch.setattr(worker_observer, "FRESH_S", 0.2)
    answer = it.slurm.jobs

    async def slow() -> tuple[RestJob, ...]:
        await asyncio.sleep(0.3)
        return await answer()

    monkeypatch.setattr(it.slurm, "jobs", slow)
    await it.settled(2)
    it.scale(1)
    await it.has(lambda: it.pods == ["w-0"])


async def test_an_old_answer_chooses_no_worker_and_keeps_none_that_goes_anyway(
    it: NodeSetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await it.up(3)
    monkeypatch.setattr(worker_observer, "FRESH_S", -1.0)
    it.scale(1)
    words = "Slurm is read once more before workers are chosen"
    await it.has(lambda: words in it.condition("Progressing").get("message", ""))
    it.kubelet.annotate("w-0", force_delete="its fan is loud")
    await it.has(lambda: "w-0" not in it.pods)
    await it.api.delete(WORKERS)
    await it.has(lambda: WORKERS not in it.api.objects)


async def test_a_slow_slurmctld_has_a_pause_after_each_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slurm, connections, place = FakeSlurm(), SlurmConnections(), ("hpc", "slurm")
    connections.connect(place, slurm.client)
    snapshots = SlurmSnapshots(connections)
    begins: list[float] = []
    ends: list[float] = []
    done = asyncio.Event()

    async def slow() -> tuple[RestReservation, ...]:
        await asyncio.sleep(0.05)
        ends.append(monotonic())
        if len(ends) == 3:
            done.set()
        return ()

    slurm.before_each_read = lambda: begins.append(monotonic())
    monkeypatch.setattr(slurm, "reservations", slow)
    snapshots.follow(snapshots.hurry)
    reading = asyncio.create_task(snapshots.run())
    snapshots.look_at(place, "w", awaits=True)
    await done.wait()
    reading.cancel()
    for begin, end, following in zip(begins, ends, begins[1:], strict=False):
        assert following - end >= end - begin


# ------------------------------------------------------------------------------------ the NodeSet's end
async def test_a_pod_of_somebody_else_keeps_no_node_set(it: NodeSetBench) -> None:
    await it.up(1)
    labels = {names.LABEL_NODE_SET: "w"}
    it.api.put(it.kubelet.at("stray"), spec={}, metadata={"labels": labels})
    await it.api.delete(WORKERS)
    await it.has(lambda: WORKERS not in it.api.objects)
    assert it.pods == ["stray"]


async def test_a_deleted_node_set_leaves_no_record(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.refused["delete", "w-0"] = SlurmUnknown("DELETE node/w-0: no answer within 5 s")
    await it.api.delete(WORKERS)
    await it.has(lambda: it.pods == [] and ("delete", "w-0") in it.slurm.writes)
    await it.settled()
    assert WORKERS in it.api.objects
    it.slurm.refused.clear()
    await it.has(lambda: WORKERS not in it.api.objects)
    assert it.slurm.states == {}


async def test_a_worker_whose_record_somebody_deleted_is_named(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.states.clear()
    await it.has(lambda: "no record of w-0" in it.condition("NodesMissing").get("message", ""))
    it.scale(0)
    await it.has(lambda: it.condition("Draining").get("status") == "Unknown")
    assert it.pods == ["w-0"]


async def test_a_node_set_whose_slurm_is_gone_says_what_keeps_it(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.away()
    await it.api.delete(WORKERS)
    await it.has(lambda: it.condition("Draining").get("status") == "Unknown")
    it.kubelet.annotate("w-0", force_delete="the cluster is gone")
    await it.has(lambda: WORKERS not in it.api.objects)


async def test_the_label_of_the_namespace_comes_back(
    it: NodeSetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redbox_hosting.controllers.workers import node_sets  # noqa: PLC0415

    await it.up(1)
    it.api.put(NAMESPACE, metadata={"labels": {}})
    monkeypatch.setattr(node_sets, "FENCED_AGAIN_S", 0.0)
    it.scale(2)
    await it.has(lambda: names.LABEL_HOLDS_WORKERS in it.api.objects[NAMESPACE]["metadata"]["labels"])


@pytest.mark.parametrize(("status", "stays"), [(503, True), (403, False)])
async def test_a_node_set_takes_its_label_off_the_namespace_before_it_goes(
    it: NodeSetBench, status: int, *, stays: bool
) -> None:
    await it.up(1)
    fault = it.api.fail(ApiRefused(status, "not now"), verb="merge", kind="Namespace")
    await it.api.delete(WORKERS)
    await it.has(lambda: it.pods == [])
    if stays:
        await it.has(lambda: it.condition("Finalizer").get("message") == "not now")
        it.api.faults.remove(fault)
    await it.has(lambda: WORKERS not in it.api.objects)
    labels = it.api.objects[NAMESPACE]["metadata"]["labels"]
    assert (names.LABEL_HOLDS_WORKERS in labels) is not stays
