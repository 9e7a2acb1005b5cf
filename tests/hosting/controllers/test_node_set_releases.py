"""Workers follow the release that slurmctld was seen to run, each after its job."""

from __future__ import annotations

from redbox_hosting.api import names
from tests.hosting.controllers.node_set_bench import LIMITS, SLURM, NodeSetBench

OLD, NEW = "registry.example.org/slurm:24.11", "registry.example.org/slurm:26.05"


def slurmctld_runs(it: NodeSetBench, image: str) -> None:
    spec = {"slurmctld": {"image": NEW}}
    it.api.put(SLURM, {**it.api.objects[SLURM], "spec": spec, "status": {"image": image}})


def image_of(it: NodeSetBench, name: str) -> str:
    return str(it.pod(name)["spec"]["containers"][0]["image"]) if name in it.pods else ""


async def test_workers_follow_the_image_that_slurmctld_runs_after_their_jobs(it: NodeSetBench) -> None:
    slurmctld_runs(it, OLD)
    await it.up(2)
    assert {image_of(it, name) for name in it.pods} == {OLD}
    it.slurm.start(1, "w-0")
    slurmctld_runs(it, NEW)
    await it.has(lambda: image_of(it, "w-1") == NEW)
    it.kubelet.start_all()
    await it.has(lambda: names.ANNOTATION_CONDEMNED in it.pod("w-0")["metadata"]["annotations"])
    await it.settled()
    assert image_of(it, "w-0") == OLD
    assert it.slurm.jobs_on("w-0") == [1]
    it.slurm.end(1)
    await it.has(lambda: image_of(it, "w-0") == NEW)
    it.kubelet.start_all()
    await it.has(lambda: it.status.get("updatedReplicas") == 2)
    assert [jobs for _, jobs in it.api.deletions] == [[], []]


async def test_a_worker_that_is_newer_than_slurmctld_is_not_made(it: NodeSetBench) -> None:
    slurmctld_runs(it, OLD)
    it.scale(1, slurmd={"resources": {"limits": LIMITS}, "image": NEW})
    await it.has(lambda: "UpgradeBlocked: slurmd of 26.05" in it.condition("Ready").get("message", ""))
    assert it.pods == []
    slurmctld_runs(it, NEW)
    await it.has(lambda: image_of(it, "w-0") == NEW)
