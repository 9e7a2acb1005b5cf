"""Which workers go, when, and what is said of them; those with jobs go by somebody's word alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.controllers.workers.acts.removal import FORCED_GRACE_S
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused
from tests.hosting.controllers.node_set_bench import (
    K1,
    LIMITS,
    READY_NODE,
    WORKERS,
    NodeSetBench,
    bench,
    operator,
)

SILENT = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}


def is_protected(it: NodeSetBench, name: str) -> bool:
    return names.LABEL_PROTECTED in it.pod(name)["metadata"]["labels"]


# ------------------------------------------------------------------------------------ order
async def test_a_lower_deletion_cost_goes_first_even_if_it_is_busy(it: NodeSetBench) -> None:
    await it.up(3)
    it.slurm.start(7, "w-0")
    it.kubelet.annotate("w-0", pod_deletion_cost="-5")
    it.scale(2)
    await it.has(lambda: names.ANNOTATION_CONDEMNED in it.pod("w-0")["metadata"]["annotations"])
    await it.settled()
    assert it.pods == ["w-0", "w-1", "w-2"]
    it.slurm.end(7)
    await it.has(lambda: it.pods == ["w-1", "w-2"])


async def test_of_busy_workers_the_one_whose_job_ends_first_goes(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-0", end_time=1_000)
    it.slurm.start(8, "w-1", end_time=2_000)
    await it.has(lambda: it.status.get("slurmAllocated") == 2)
    it.scale(1)
    await it.has(lambda: "DRAIN" in it.slurm.states["w-0"])
    assert "DRAIN" not in it.slurm.states["w-1"]


async def test_the_protection_is_there_until_the_gate_has_passed(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-1")
    it.scale(0)
    await it.has(lambda: it.pods == ["w-1"])
    with pytest.raises(ApiRefused, match="may have jobs"):
        await it.api.delete(it.kubelet.at("w-1"))
    it.slurm.end(7)
    await it.has(lambda: it.pods == [])
    assert it.api.deletions == [("w-0", []), ("w-1", [])]


async def test_protection_is_taken_off_and_put_on_again_as_the_node_set_says(it: NodeSetBench) -> None:
    await it.up(1)
    it.scale(1, workloadDisruptionProtection=False)
    await it.has(lambda: not is_protected(it, "w-0"))
    it.scale(1)
    await it.has(lambda: is_protected(it, "w-0"))


# ------------------------------------------------------------------------------------ somebody's word
async def test_a_worker_that_its_administrator_condemns_is_replaced_after_its_job(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-0")
    before = it.pod("w-0")["metadata"]["uid"]
    it.kubelet.annotate("w-0", condemned="bad fan")
    await it.has(lambda: it.slurm.reasons.get("w-0") == "red-box: bad fan")
    assert names.ANNOTATION_CONDEMNED_AT in it.pod("w-0")["metadata"]["annotations"]
    await it.settled()
    assert it.pod("w-0")["metadata"]["uid"] == before
    it.slurm.end(7)
    await it.has(lambda: it.pods == ["w-0", "w-1"] and it.pod("w-0")["metadata"]["uid"] != before)


async def test_force_delete_requeues_the_jobs_and_deletes_the_worker(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-1", name="train", user_name="alice")
    await it.has(lambda: it.status.get("slurmAllocated") == 1)
    before = it.pod("w-1")["metadata"]["uid"]
    graces: list[object] = []
    delete = it.api.delete

    async def noted(where: Any, **options: Any) -> Any:
        if where.kind == kinds.POD:
            graces.append(options.get("gracePeriodSeconds"))
        return await delete(where, **options)

    it.api.delete = noted  # type: ignore[method-assign]
    it.kubelet.annotate("w-1", force_delete="the machine burns")
    await it.has(lambda: it.pod("w-1")["metadata"]["uid"] != before if "w-1" in it.pods else False)
    assert ("down", "w-1") in it.slurm.writes
    assert it.slurm.running[7].job_state == {"PENDING"}
    assert graces == [FORCED_GRACE_S]
    await it.has(lambda: "forced: the machine burns" in it.event("Removal"))
    assert any("with jobs on it: 7 (alice: train)" in each["message"] for each in it.api.events)


async def test_force_delete_needs_no_slurm(it: NodeSetBench) -> None:
    await it.up(1)
    before = it.pod("w-0")["metadata"]["uid"]
    it.slurm.away()
    it.kubelet.annotate("w-0", force_delete="I know")
    await it.has(lambda: it.pods == ["w-0"] and it.pod("w-0")["metadata"]["uid"] != before)


async def test_after_the_drain_timeout_jobs_are_requeued(it: NodeSetBench) -> None:
    await it.up(1, redbox={"drainTimeout": 0})
    it.slurm.start(7, "w-0")
    it.scale(0, redbox={"drainTimeout": 0})
    await it.has(lambda: it.pods == [])
    assert it.slurm.running[7].job_state == {"PENDING"}
    assert it.api.deletions == [("w-0", [])]


async def test_a_worker_that_is_condemned_again_has_its_whole_drain_timeout(it: NodeSetBench) -> None:
    await it.up(1, redbox={"drainTimeout": 3600})
    it.slurm.start(7, "w-0")
    it.kubelet.annotate("w-0", condemned="memory test")
    await it.has(lambda: names.ANNOTATION_CONDEMNED_AT in it.pod("w-0")["metadata"]["annotations"])
    it.kubelet.annotate("w-0", condemned=None)
    await it.has(lambda: names.ANNOTATION_CONDEMNED_AT not in it.pod("w-0")["metadata"]["annotations"])


async def test_the_drain_of_a_machine_ends_after_the_jobs_of_its_workers(it: NodeSetBench) -> None:
    await it.up(2)
    it.slurm.start(7, "w-1")
    it.api.put(K1, READY_NODE | {"spec": {"unschedulable": True}})
    await it.has(lambda: not is_protected(it, "w-0"))
    await it.settled()
    assert is_protected(it, "w-1")
    assert it.pods == ["w-0", "w-1"]  # nobody has asked for their end
    it.slurm.states["w-0"].discard("DRAIN")  # somebody's RESUME, and a job at once
    it.slurm.start(8, "w-0")
    await it.has(lambda: is_protected(it, "w-0"))
    it.slurm.end(8)
    it.slurm.end(7)
    await it.has(lambda: not is_protected(it, "w-0") and not is_protected(it, "w-1"))
    await it.api.delete(it.kubelet.at("w-1"))  # `kubectl drain`
    await it.has(lambda: it.pods == ["w-0", "w-1"])
    assert it.api.deletions == [("w-1", [])]


async def test_a_worker_is_protected_again_before_it_is_resumed(it: NodeSetBench) -> None:
    await it.up(1)
    it.api.put(K1, READY_NODE | {"spec": {"unschedulable": True}})
    await it.has(lambda: not is_protected(it, "w-0"))
    protected_at_resume: list[bool] = []
    it.slurm.before_each_write = lambda: protected_at_resume.append(is_protected(it, "w-0"))
    it.api.put(K1, READY_NODE)
    await it.has(lambda: it.slurm.states["w-0"] == {"IDLE"})
    assert protected_at_resume == [True]


# ------------------------------------------------------------------------------------ lost and failed
async def test_a_worker_on_a_silent_machine_is_replaced_and_not_touched(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.start(7, "w-0")
    it.api.put(K1, status={"conditions": [SILENT]})
    await it.has(lambda: it.pods == ["w-0", "w-1"])
    await it.has(lambda: "w-0 on k1" in it.condition("MachinesLost").get("message", ""))
    await it.settled()
    assert names.ANNOTATION_CONDEMNED not in it.pod("w-0")["metadata"]["annotations"]
    assert it.slurm.writes == []


async def test_out_of_service_is_an_administrators_word_that_a_machine_is_off(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.away()
    it.api.put(K1, status={"conditions": [SILENT]}, spec={"taints": [OUT_OF_SERVICE]})
    await it.has(lambda: it.pods == ["w-1"])


async def test_a_worker_of_a_deleted_node_goes_when_slurm_has_taken_its_job(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.start(7, "w-0", name="train", user_name="alice")
    await it.has(lambda: it.status.get("slurmAllocated") == 1)
    it.api.remove(K1)
    await it.has(lambda: it.pods == ["w-0", "w-1"])
    await it.settled()
    assert it.pods == ["w-0", "w-1"]
    it.slurm.end(7, "NODE_FAIL")
    it.slurm.states["w-0"] = {"DOWN", "NOT_RESPONDING"}
    await it.has(lambda: it.pods == ["w-1"])


async def test_a_node_that_was_deleted_for_a_moment_keeps_its_worker(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.start(7, "w-0")
    it.api.remove(K1)
    await it.has(lambda: names.ANNOTATION_CONDEMNED in it.pod("w-0")["metadata"]["annotations"])
    it.api.put(K1, READY_NODE)
    await it.has(lambda: names.ANNOTATION_CONDEMNED not in it.pod("w-0")["metadata"]["annotations"])


async def test_a_claim_binds_its_worker_to_its_name_and_a_dead_machine_lets_go_of_it(
    it: NodeSetBench,
) -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}]
    await it.up(1, volumeClaimTemplates=claims)
    before = it.pod("w-0")["metadata"]["uid"]
    it.api.put(K1, status={"conditions": [SILENT]})
    await it.has(lambda: it.condition("MachinesLost"))
    await it.settled()
    assert it.pods == ["w-0"]
    it.api.put(K1, status={"conditions": [SILENT]}, spec={"taints": [OUT_OF_SERVICE]})
    await it.has(lambda: it.pods == ["w-0"] and it.pod("w-0")["metadata"]["uid"] != before)


async def test_a_pod_that_its_kubelet_has_evicted_is_replaced(it: NodeSetBench) -> None:
    await it.up(1)
    body = it.pod("w-0")
    ended = [{"name": "slurmd", "restartCount": 0, "state": {"terminated": {"exitCode": 137}}}]
    it.kubelet.put("w-0", status={**body["status"], "phase": "Failed", "containerStatuses": ended})
    it.slurm.states["w-0"] = {"DOWN", "NOT_RESPONDING"}
    await it.has(lambda: it.pods == ["w-0"] and it.pod("w-0")["metadata"]["uid"] != body["metadata"]["uid"])


async def test_the_jobs_of_a_worker_that_others_ended_are_named(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.start(7, "w-0", name="train\nall", user_name="alice")
    await it.has(lambda: it.status.get("slurmAllocated") == 1)
    it.api.remove(it.kubelet.at("w-0"))
    it.slurm.end(7, "NODE_FAIL")
    await it.has(lambda: it.event("JobsLost"))
    assert it.event("JobsLost").startswith("w-0 ended with jobs on it: 7 (alice: train")
    assert "\n" not in it.event("JobsLost")


async def test_a_container_that_was_started_again_has_lost_its_jobs(it: NodeSetBench) -> None:
    await it.up(1)
    it.slurm.start(7, "w-0", name="train", user_name="alice")
    await it.has(lambda: it.status.get("slurmAllocated") == 1)
    again = [{"name": "slurmd", "restartCount": 1, "state": {"running": {}}}]
    it.kubelet.put("w-0", status={**it.pod("w-0")["status"], "containerStatuses": again})
    it.slurm.running[7] = it.slurm.running[7].model_copy(
        update={"job_state": frozenset({"PENDING"}), "nodes": ()}
    )
    await it.has(lambda: "7 (alice: train)" in it.event("JobsLost"))


# ------------------------------------------------------------------------------------ what is not taken
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"slurmd": {"resources": {"limits": LIMITS}, "command": ["sh"]}}, "spec.slurmd.command"),
        ({"template": {"spec": {"activeDeadlineSeconds": 5}}}, "spec.template.spec.activeDeadlineSeconds"),
        (
            {"template": {"metadata": {"annotations": {names.ANNOTATION_FORCE_DELETE: "x"}}}},
            f"spec.template.metadata.annotations.{names.ANNOTATION_FORCE_DELETE}",
        ),
    ],
)
async def test_fields_that_workers_do_not_take_are_named(
    it: NodeSetBench, given: dict[str, Any], words: str
) -> None:
    await it.up(1, **given)
    await it.has(lambda: f"{words} is not taken by workers: remove it" in it.condition("Degraded")["message"])
    assert names.ANNOTATION_FORCE_DELETE not in it.pod("w-0")["metadata"]["annotations"]


async def test_options_of_a_node_that_are_refused_are_named(it: NodeSetBench) -> None:
    await it.up(1, extraConf="Weight=2 NodeHostname=x")
    await it.has(lambda: "extraConf: NodeHostname is refused" in it.condition("Degraded")["message"])


async def test_a_way_to_scale_that_is_not_built_is_named_and_ends_no_worker(it: NodeSetBench) -> None:
    await it.up(2)
    it.scale(0, redbox={"onDemand": {"max": 3}})
    await it.has(lambda: "spec.redbox.onDemand is not built" in it.condition("Ready").get("message", ""))
    assert it.condition("Ready")["status"] == "False"
    await it.settled()
    assert it.pods == ["w-0", "w-1"]
    assert names.ANNOTATION_CONDEMNED not in it.pod("w-1")["metadata"]["annotations"]


# ------------------------------------------------------------------------------------ everything at once
@pytest.mark.parametrize("seed", range(3))
async def test_a_storm_ends_no_job(seed: int) -> None:
    """Scale-ins, drains, resumes, faults, and operators that are killed in the middle of anything."""
    chance = random.Random(seed)
    async with bench(runs=False) as it:
        for _ in range(6):
            async with operator(it.api, it.slurm):
                await _storm(it, chance)
        it.slurm.error = None
        it.api.recover()
        for number in _running(it):
            it.slurm.end(number)
        async with operator(it.api, it.slurm):
            it.scale(2)
            await it.has(lambda: len(it.pods) == 2)
            it.kubelet.start_all()
            await it.has(lambda: it.status.get("slurmIdle") == 2)
    assert it.api.deletions
    assert [jobs for _, jobs in it.api.deletions if jobs] == []
    assert WORKERS in it.api.objects


async def _storm(it: NodeSetBench, chance: random.Random) -> None:
    for _ in range(12):
        match chance.randrange(7):
            case 0 | 1:
                it.scale(chance.randrange(6))
            case 2 | 3:
                it.kubelet.start_all()
                free = [name for name, states in it.slurm.states.items() if states == {"IDLE"}]
                if free:
                    it.slurm.start(len(it.slurm.running), chance.choice(free))
            case 4:
                if running := _running(it):
                    it.slurm.end(chance.choice(running))
            case 5:
                it.slurm.away()
            case _:
                it.slurm.error = None
                name = chance.choice([*it.slurm.states, ""])
                if name:
                    it.slurm.states[name].discard("DRAIN")  # an administrator's RESUME
        await it.pause(chance.random() * 0.05)


def _running(it: NodeSetBench) -> list[int]:
    return [number for number, job in it.slurm.running.items() if job.job_state == {"RUNNING"}]
