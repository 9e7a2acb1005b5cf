"""NodeSets in DaemonSet mode: a worker on each Kubernetes node that the template selects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.controllers.workers import worker_observer
from redbox_hosting.controllers.workers.plans import acts_of
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.nodeset.wanted import NodeAct
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from tests.hosting.controllers.node_set_bench import READY_NODE, WORKERS, NodeSetBench, bench

DAEMONS = {"scalingMode": "DaemonSet", "template": {"spec": {"nodeSelector": {"kind": "slurm"}}}}


def machine(name: str) -> ResourcePath:
    return ResourcePath(kinds.NODE, name)


def select(it: NodeSetBench, name: str, *, selected: bool = True) -> None:
    it.api.put(machine(name), READY_NODE, metadata={"labels": {"kind": "slurm" if selected else "web"}})


async def up(it: NodeSetBench, *machines: str, **more: object) -> None:
    for name in machines:
        select(it, name)
    it.scale(1, **{**DAEMONS, **more})
    await it.has(lambda: len(it.pods) == len(machines))
    it.kubelet.start_all()
    await it.has(lambda: it.status.get("availableReplicas") == len(machines))
    await it.has(lambda: it.status.get("slurmIdle") == len(machines))


async def test_each_selected_node_has_a_worker_of_its_short_name(it: NodeSetBench) -> None:
    await up(it, "k2.example.org", "k3.example.org")
    assert it.pods == ["k2", "k3"]
    assert it.pod("k2")["spec"]["nodeName"] == "k2.example.org"
    assert it.pod("k2")["metadata"]["labels"][names.LABEL_PROTECTED] == "true"
    await it.has(lambda: it.condition("Ready").get("status") == "True")
    assert it.status["desired"] == 2
    assert set(it.slurm.states) == {"k2", "k3"}


async def test_a_new_node_gets_a_worker(it: NodeSetBench) -> None:
    await up(it, "k2")
    select(it, "k3")
    await it.has(lambda: it.pods == ["k2", "k3"])


async def test_a_node_that_is_selected_no_more_keeps_its_worker_until_its_job_has_ended(
    it: NodeSetBench,
) -> None:
    await up(it, "k2", "k3")
    it.slurm.start(7, "k3")
    select(it, "k3", selected=False)
    await it.has(lambda: "DRAIN" in it.slurm.states["k3"])
    assert it.slurm.reasons["k3"] == "red-box: its Kubernetes node is not selected"
    await it.settled()
    assert it.pods == ["k2", "k3"]
    it.slurm.end(7)
    await it.has(lambda: it.pods == ["k2"])
    await it.settled()
    assert "k3" in it.slurm.states  # records are kept unless pruning is asked for


async def test_a_node_that_is_selected_again_keeps_its_worker(it: NodeSetBench) -> None:
    await up(it, "k2")
    it.slurm.start(7, "k2")
    select(it, "k2", selected=False)
    await it.has(lambda: "DRAIN" in it.slurm.states["k2"])
    select(it, "k2")
    await it.has(lambda: "DRAIN" not in it.slurm.states["k2"])
    assert names.ANNOTATION_CONDEMNED not in it.pod("k2")["metadata"]["annotations"]


@pytest.mark.parametrize(("prunes", "is_kept"), [("Never", True), ("NodeNotFound", False)])
async def test_the_record_of_a_node_that_is_gone_is_pruned_where_that_is_asked_for(
    it: NodeSetBench, prunes: str, *, is_kept: bool
) -> None:
    await up(it, "k2", "k3", pruneSlurmNodeRecords=prunes)
    it.slurm.states["k3"], it.slurm.reasons["k3"] = {"DOWN", "NOT_RESPONDING"}, "Not responding"
    it.api.remove(machine("k3"))
    await it.has(lambda: it.pods == ["k2"])
    if not is_kept:
        await it.has(lambda: "k3" not in it.slurm.states)
    await it.settled()
    assert ("k3" in it.slurm.states) is is_kept


async def test_a_worker_that_is_made_again_gets_a_new_record(it: NodeSetBench) -> None:
    """The former one may have another size."""
    await up(it, "k2")
    it.kubelet.annotate("k2", condemned="bad fan")
    await it.has(lambda: ("delete", "k2") in it.slurm.writes)
    await it.has(lambda: it.pods == ["k2"] and "status" not in it.pod("k2"))


async def test_two_node_sets_on_one_node_are_reported(it: NodeSetBench) -> None:
    select(it, "k2")
    it.api.put(it.kubelet.at("k2"), spec={}, metadata={"labels": {}})
    it.scale(1, **DAEMONS)
    await it.has(lambda: "k2" in it.condition("Workers").get("message", ""))
    assert "select other Kubernetes nodes" in it.condition("Workers")["message"]


async def test_a_heartbeat_of_a_kubelet_reconciles_nothing(
    it: NodeSetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await up(it, "k2")
    await it.settled()
    observed: list[object] = []

    def counted(workers: Sequence[WorkerView], *more: Any) -> dict[str, NodeAct]:
        observed.append(workers)
        return acts_of(workers, *more)

    monkeypatch.setattr(worker_observer, "acts_of", counted)
    ready = READY_NODE["status"]["conditions"][0]
    for second in range(10):
        beat = {**ready, "lastHeartbeatTime": f"2026-01-02T00:00:0{second}Z"}
        status = {"conditions": [beat]}
        it.api.put(machine("k2"), spec={}, status=status, metadata={"labels": {"kind": "slurm"}})
        await it.pause(0)
    await it.settled()
    assert observed == []
    select(it, "k3")
    await it.has(lambda: it.pods == ["k2", "k3"])
    assert observed


async def test_without_the_right_to_read_nodes_it_says_so() -> None:
    async with bench(reads_nodes=False) as it:
        it.scale(1, **DAEMONS)
        await it.has(lambda: it.condition("NodesUnreadable").get("status") == "True")
        assert "set hosting.nodes to read" in it.condition("Ready")["message"]
        assert it.pods == []


async def test_its_workers_go_through_the_gate_with_it_and_their_records_too(it: NodeSetBench) -> None:
    await up(it, "k2")
    it.slurm.start(7, "k2")
    await it.api.delete(WORKERS)
    await it.has(lambda: "DRAIN" in it.slurm.states["k2"])
    await it.settled()
    assert it.pods == ["k2"]
    it.slurm.end(7)
    await it.has(lambda: WORKERS not in it.api.objects)
    assert it.slurm.states == {}


async def test_from_a_number_of_workers_to_one_on_each_node_and_back(it: NodeSetBench) -> None:
    await it.up(2)
    select(it, "k2")
    it.scale(2, **DAEMONS)
    await it.has(lambda: it.pods == ["k2"])
    it.kubelet.start_all()
    await it.has(lambda: it.status.get("slurmIdle") == 1)
    it.scale(1)
    await it.has(lambda: it.pods == ["w-0"])
