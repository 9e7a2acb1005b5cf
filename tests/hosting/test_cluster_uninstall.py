"""The hook of `helm uninstall` of one cluster: refused, after the jobs, with the jobs, or not at all."""

from __future__ import annotations

import pytest

from redbox_hosting.api import names
from redbox_hosting.cluster_uninstall import ABANDONED, WorkersFate, end_workers
from redbox_kube.api.kinds import POD
from redbox_kube.api.objects import ResourcePath
from redbox_kube.install.crd_commands import CommandFailed
from tests.kube.fakes import FakeApiServer

NODE_SET = ResourcePath(names.NODE_SETS, "cpu", "hpc")
OTHERS = ResourcePath(names.NODE_SETS, "gpu", "hpc")
WORKER, CONTROLLER = ResourcePath(POD, "cpu-0", "hpc"), ResourcePath(POD, "slurm-controller-0", "hpc")


class Cluster:
    """A NodeSet with a finalizer and a worker; another cluster's NodeSet in the same namespace."""

    def __init__(self) -> None:
        self.api = FakeApiServer()
        self.said: list[str] = []
        self.pauses = 0
        finalizers = {"name": "cpu", "namespace": "hpc", "finalizers": [names.FINALIZER_WORKERS]}
        self.api.put(NODE_SET, metadata=finalizers, spec={"controllerRef": {"name": "slurm"}})
        self.api.put(OTHERS, spec={"controllerRef": {"name": "other"}})
        labels = {names.LABEL_CLUSTER: "slurm", names.LABEL_NODE_SET: "cpu"}
        self.api.put(WORKER, metadata={"name": "cpu-0", "namespace": "hpc", "labels": labels})
        daemon = {"name": CONTROLLER.name, "namespace": "hpc", "labels": {names.LABEL_CLUSTER: "slurm"}}
        self.api.put(CONTROLLER, metadata=daemon)

    async def end(self, fate: WorkersFate) -> None:
        await end_workers(self.api.client, "hpc", "slurm", fate, say=self.said.append, pause=self.jobs_end)

    async def jobs_end(self, _: float) -> None:
        """The operator lets both go, at the second look."""
        self.pauses += 1
        if self.pauses == 2:
            self.api.remove(WORKER)
            self.api.remove(NODE_SET)

    @property
    def is_forced(self) -> str:
        annotations = self.api.objects[WORKER]["metadata"].get("annotations", {})
        return str(annotations.get(names.ANNOTATION_FORCE_DELETE, ""))


async def test_it_is_refused_while_nobody_has_said_what_becomes_of_workers() -> None:
    cluster = Cluster()
    with pytest.raises(CommandFailed, match=r"^NodeSet cpu may have jobs: say what becomes of"):
        await cluster.end(WorkersFate.REFUSE)
    assert "deletionTimestamp" not in cluster.api.objects[NODE_SET]["metadata"]


@pytest.mark.parametrize(("asked", "forced"), [("Drain", ""), ("Abandon", ABANDONED)])
async def test_an_annotation_says_it_after_a_refusal(asked: str, forced: str) -> None:
    """Helm takes no other values then."""
    cluster = Cluster()
    annotated = {"name": "slurm", "namespace": "hpc", "annotations": {names.ANNOTATION_UNINSTALL: asked}}
    cluster.api.put(ResourcePath(names.CONTROLLERS, "slurm", "hpc"), metadata=annotated)
    seen: list[str] = []

    async def look(seconds: float) -> None:
        seen.append(cluster.is_forced)
        await cluster.jobs_end(seconds)

    await end_workers(cluster.api.client, "hpc", "slurm", WorkersFate.REFUSE, say=print, pause=look)
    assert seen == [forced] * 2


async def test_a_drain_waits_for_the_workers_and_forces_none() -> None:
    cluster = Cluster()
    seen: list[str] = []
    cluster.said = seen
    await cluster.end(WorkersFate.DRAIN)
    assert (cluster.pauses, seen) == (2, ["waits for the end of cpu-0"])
    assert NODE_SET not in cluster.api.objects
    assert "deletionTimestamp" not in cluster.api.objects[OTHERS]["metadata"]


async def test_abandoned_workers_go_with_their_jobs() -> None:
    cluster = Cluster()
    forced: list[str] = []

    async def look(seconds: float) -> None:
        forced.append(cluster.is_forced)
        await cluster.jobs_end(seconds)

    await end_workers(cluster.api.client, "hpc", "slurm", WorkersFate.ABANDON, say=print, pause=look)
    assert forced == [ABANDONED] * 2
    assert names.ANNOTATION_FORCE_DELETE not in (
        cluster.api.objects[CONTROLLER]["metadata"].get("annotations") or {}
    )


async def test_workers_that_are_to_run_on_are_left_alone() -> None:
    cluster = Cluster()
    writes = cluster.api.writes
    await cluster.end(WorkersFate.KEEP_RUNNING)
    assert cluster.api.writes == writes


@pytest.mark.parametrize("fate", list(WorkersFate))
async def test_without_workers_nothing_is_in_the_way(fate: WorkersFate) -> None:
    await end_workers(FakeApiServer().client, "hpc", "slurm", fate, say=print)
