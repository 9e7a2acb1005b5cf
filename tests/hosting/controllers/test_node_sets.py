"""Workers of a NodeSet: made without Slurm, scaled through the gate, and kept in any doubt."""

from __future__ import annotations

import contextlib

from redbox_hosting.api import names
from redbox_kube.api.objects import ApiRefused
from tests.hosting.controllers.node_set_bench import (
    BUDGET,
    NAMESPACE,
    SLURM,
    WORKERS,
    NodeSetBench,
    bench,
    operator,
)


async def test_workers_are_born_protected_and_idle_ones_are_available(it: NodeSetBench) -> None:
    await it.up(3)
    assert it.pods == ["w-0", "w-1", "w-2"]
    for name in it.pods:
        assert it.pod(name)["metadata"]["labels"][names.LABEL_PROTECTED] == "true"
    await it.has(lambda: it.condition("Ready").get("status") == "True")
    assert it.condition("Progressing")["status"] == it.condition("Degraded")["status"] == "False"
    assert it.status["replicas"] == it.status["readyReplicas"] == 3
    assert it.status["selector"] == f"{names.LABEL_NODE_SET}=w"
    assert it.api.objects[NAMESPACE]["metadata"]["labels"][names.LABEL_HOLDS_WORKERS] == "true"
    assert it.slurm.writes == []


async def test_no_worker_is_made_before_its_budget(it: NodeSetBench) -> None:
    it.api.remove(BUDGET)
    it.scale(1)
    await it.has(lambda: "PodDisruptionBudget" in it.condition("Workers").get("message", ""))
    assert it.pods == []


async def test_workers_are_made_while_slurm_is_away(it: NodeSetBench) -> None:
    it.slurm.away()
    it.scale(5)
    await it.has(lambda: len(it.pods) == 5)


async def test_a_missing_controller_is_named(it: NodeSetBench) -> None:
    it.api.remove(SLURM)
    it.scale(1)
    await it.has(lambda: "there is no Controller slurm" in it.condition("Ready").get("message", ""))
    assert it.pods == []


async def test_a_pod_of_somebody_else_is_not_taken(it: NodeSetBench) -> None:
    it.api.put(it.kubelet.at("w-0"), spec={}, metadata={"labels": {}})
    it.scale(1)
    await it.has(lambda: "does not belong to NodeSet w" in it.condition("Workers").get("message", ""))


async def test_a_quota_stops_the_first_batch_and_its_words_are_shown(it: NodeSetBench) -> None:
    it.api.fail(ApiRefused(403, "exceeded quota"), verb="create", kind="Pod")
    it.scale(30)
    await it.has(lambda: it.condition("Workers").get("message") == "exceeded quota")
    assert it.api.asked.count("create Pod") < 30  # one for each try, of which a slow machine has a few
    assert it.condition("Degraded")["status"] == "True"


async def test_idle_workers_go_from_the_highest_and_their_records_with_them(it: NodeSetBench) -> None:
    await it.up(3)
    it.scale(1)
    await it.has(lambda: it.pods == ["w-0"])
    await it.has(lambda: set(it.slurm.states) == {"w-0"})
    assert ("drain", "w-2") in it.slurm.writes
    assert ("drain", "w-0") not in it.slurm.writes
    await it.has(lambda: it.status["replicas"] == 1)


async def test_a_worker_with_a_job_waits_for_its_end(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-1")
    it.slurm.start(8, "w-0")
    it.scale(0)
    await it.has(lambda: "DRAIN" in it.slurm.states["w-1"])
    await it.has(lambda: names.CONDITION_DRAINING in it.kubelet.conditions("w-1"))
    assert "jobs on the node: 7" in it.kubelet.conditions("w-1")[names.CONDITION_DRAINING]["message"]
    assert it.kubelet.conditions("w-1")["Ready"]["status"] == "True"
    await it.has(lambda: it.condition("Draining").get("status") == "True")
    await it.settled()
    assert it.pods == ["w-0", "w-1"]
    assert it.pod("w-1")["metadata"]["labels"][names.LABEL_PROTECTED] == "true"
    it.slurm.end(7)
    await it.has(lambda: it.pods == ["w-0"])
    await it.settled()
    assert it.pods == ["w-0"]
    it.slurm.end(8)
    await it.has(lambda: it.pods == [])


async def test_unknown_keeps_the_worker_and_says_so(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.away()
    it.scale(0)
    await it.has(lambda: it.condition("Draining").get("status") == "Unknown")
    words = it.condition("Draining")["message"]
    assert "slurmctld does not answer" in words
    assert "annotate them with slurm.redbox.dev/force-delete" in words
    await it.settled()
    assert it.pods == ["w-0", "w-1"]
    assert it.kubelet.conditions("w-1")[names.CONDITION_DRAINING]["status"] == "Unknown"
    it.slurm.error = None
    await it.has(lambda: it.pods == [])


async def test_scaled_out_again_a_waiting_worker_stays(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-1")
    it.slurm.start(8, "w-0")
    it.scale(1)
    await it.has(lambda: "DRAIN" in it.slurm.states["w-1"])
    it.scale(2)
    await it.has(lambda: "DRAIN" not in it.slurm.states["w-1"])
    assert names.ANNOTATION_CONDEMNED not in it.pod("w-1")["metadata"]["annotations"]
    await it.has(lambda: it.status["replicas"] == 2)


async def test_an_administrators_drain_stays_and_is_shown(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.states["w-0"].add("DRAIN")
    it.slurm.reasons["w-0"] = "bad disk [root@2026-01-01T00:00:00]"
    await it.has(lambda: names.CONDITION_DRAINING in it.kubelet.conditions("w-0"))
    shown = it.kubelet.conditions("w-0")[names.CONDITION_DRAINING]
    assert (shown["reason"], shown["message"]) == ("Administrator", "bad disk")
    assert any(event["reason"] == "NodeDraining" for event in it.api.events)
    await it.settled()
    assert it.slurm.writes == []
    it.slurm.states["w-0"].discard("DRAIN")
    await it.has(lambda: it.kubelet.conditions("w-0")[names.CONDITION_DRAINING]["status"] == "False")


async def test_a_cordoned_pod_is_drained_and_resumed(it: NodeSetBench) -> None:
    await it.up(1)
    it.kubelet.annotate("w-0", pod_cordon="firmware")
    await it.has(lambda: "DRAIN" in it.slurm.states["w-0"])
    assert it.slurm.reasons["w-0"] == "red-box: cordoned: firmware"
    it.kubelet.annotate("w-0", pod_cordon=None)
    await it.has(lambda: "DRAIN" not in it.slurm.states["w-0"])


async def test_a_rebooted_node_is_resumed_once_its_pod_is_ready(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.reasons["w-0"] = "Node unexpectedly rebooted"
    it.slurm.states["w-0"] = {"DOWN"}
    await it.has(lambda: it.slurm.states["w-0"] == {"IDLE"})


async def test_an_altered_pod_is_named_and_not_resumed(it: NodeSetBench) -> None:
    await it.up(1)
    body = it.pod("w-0")
    sidecar = {"name": "sidecar", "image": "proxy"}
    it.kubelet.put("w-0", spec={**body["spec"], "containers": [*body["spec"]["containers"], sidecar]})
    await it.has(lambda: "sidecar was added" in it.condition("PodAltered").get("message", ""))
    it.slurm.reasons["w-0"] = "Node unexpectedly rebooted"
    it.slurm.states["w-0"] = {"DOWN"}
    await it.settled()
    assert it.slurm.states["w-0"] == {"DOWN"}


async def test_a_deleted_node_set_goes_after_its_jobs(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-0")
    assert it.api.objects[WORKERS]["metadata"]["finalizers"] == [names.FINALIZER_WORKERS]
    await it.api.delete(WORKERS)
    await it.has(lambda: it.pods == ["w-0"])
    await it.settled()
    assert it.pods == ["w-0"]
    it.slurm.end(7)
    await it.has(lambda: WORKERS not in it.api.objects)
    assert it.pods == []
    assert names.LABEL_HOLDS_WORKERS not in it.api.objects[NAMESPACE]["metadata"]["labels"]


async def test_a_node_set_deleted_in_the_foreground_goes_after_its_jobs_too(it: NodeSetBench) -> None:
    """The garbage collector deletes what is owned first; workers are protected until the gate has passed."""
    await it.up(2)
    it.slurm.start(7, "w-0")
    await it.has(lambda: it.status.get("slurmAllocated") == 1)
    found = it.api.objects[WORKERS]
    finalizers = [*found["metadata"]["finalizers"], "foregroundDeletion"]
    it.api.put(WORKERS, {**found, "metadata": {**found["metadata"], "finalizers": finalizers}})
    await it.api.delete(WORKERS)
    for where, body in list(it.api.objects.items()):
        if body["metadata"].get("ownerReferences", [{}])[0].get("kind") == "NodeSet":
            with contextlib.suppress(ApiRefused):
                await it.api.delete(where)
    await it.has(lambda: it.pods == ["w-0"])
    await it.settled()
    assert it.pods == ["w-0"]
    it.slurm.end(7)
    await it.has(lambda: it.api.objects[WORKERS]["metadata"]["finalizers"] == ["foregroundDeletion"])
    assert it.pods == []
    assert all(jobs == [] for _, jobs in it.api.deletions)


async def test_the_next_operator_continues_where_one_was_killed() -> None:
    async with bench(runs=False) as it:
        async with operator(it.api, it.slurm):
            await it.up(2)
            it.slurm.start(7, "w-1")
            it.slurm.start(8, "w-0")
            await it.has(lambda: it.status.get("slurmAllocated") == 2)
            it.scale(1)
            await it.has(lambda: "DRAIN" in it.slurm.states["w-1"])
        async with operator(it.api, it.slurm):
            await it.settled()
            assert it.pods == ["w-0", "w-1"]
            it.slurm.end(7)
            await it.has(lambda: it.pods == ["w-0"])


async def test_idle_workers_go_before_busy_ones() -> None:
    async with bench() as it:
        await it.up(3)
        it.slurm.start(7, "w-2")
        await it.has(lambda: it.status.get("slurmAllocated") == 1)
        it.scale(1)
        await it.has(lambda: it.pods == ["w-2"])
