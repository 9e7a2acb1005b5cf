"""What one look at a pod cannot say now is said later, and ends nothing else; a job is not lost at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from redbox_api.models import Job, JobList, OwnerRef, Phase
from redbox_kube.api.objects import ApiUnreachable, Object, ObjectClient, ResourcePath
from redbox_resourced.partitions.slurmclusters import Clusters, ServedNode
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_view import SUBMITTED, BoundPod
from redbox_resourced.pods.reconciler import VirtualPods
from redbox_resourced.pods.submission import Never
from redbox_shared.job_end import LOST_AFTER_S
from tests.resourced.clusters_seen import slurm_cluster

NODE: Object = {"metadata": {"name": "hpc1.debug"}, "spec": {"providerID": "redbox://hpc1/debug"}}
OWNER = {
    "apiVersion": "redbox.dev/v1alpha1",
    "kind": "SlurmJob",
    "name": "cow",
    "uid": "u",
    "controller": True,
}
POD: Object = {
    "metadata": {
        "namespace": "alice",
        "name": "cow-job",
        "uid": "u",
        "creationTimestamp": "2026-11-21T13:00:00Z",
        "ownerReferences": [OWNER],
    },
    "spec": {"nodeName": "hpc1.debug", "containers": [{"name": "companion", "image": "i"}]},
}


class ApiServer:
    """One node with one pod; away at the first write."""

    def __init__(self) -> None:
        self.writes = 0
        self.written: asyncio.Future[Object] = asyncio.get_running_loop().create_future()

    pod: Object = POD

    async def pages(self, where: ResourcePath, *_: Any) -> AsyncIterator[tuple[list[Object], str]]:
        yield [NODE if where.kind == "Node" else self.pod], "1"

    async def watch(self, *_: Any) -> AsyncIterator[Object]:
        await asyncio.Event().wait()
        yield {}

    async def apply(self, _: ResourcePath, body: Object, **__: Any) -> None:
        self.writes += 1
        if self.writes == 1:
            raise ApiUnreachable("the API server does not answer: refused")
        if not self.written.done():
            self.written.set_result(body)


class Known:
    """One SlurmCluster, which serves every node."""

    followed: ClassVar[dict[str, Any]] = {}

    def of_node(self, _: str) -> ServedNode:
        return cast("ServedNode", object())


class AllRefused(VirtualPods):
    """Red-box will never have any of them."""

    asked = 0

    async def _keep_job(self, pod: BoundPod, node: ServedNode) -> float | None:  # noqa: ARG002
        self.asked += 1
        raise Never(JobRefusal("no mapping for this account"))


async def test_a_refusal_that_cannot_be_written_is_written_later() -> None:
    server = ApiServer()
    pods = AllRefused(cast("ObjectClient", server), cast("Clusters", Known()), cast("Any", None), "10.0.0.7")
    running = asyncio.create_task(pods.run())
    async with asyncio.timeout(30):
        assert "no mapping" in str(await server.written)
        pods.look_at(("alice", "cow-job"))  # its own write comes back
        await asyncio.sleep(0.1)
    assert pods.asked == 1
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


RUNNING = Job(
    key="u",
    attempt=1,
    owner=OwnerRef(cluster="hpc1", namespace="alice", account="default"),
    user="alice",
    phase=Phase.RUNNING,
)
PLACE = ("alice", "cow-job")


class Redbox:
    """It answers; which jobs it has, a test says."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.asked = 0

    async def list_jobs(self, **_: Any) -> AsyncIterator[JobList]:
        yield JobList(items=[], revision="1")

    async def watch_jobs(self, _: str) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None

    async def job_of_known(self, _pod: BoundPod, _node: ServedNode) -> Job | None:
        self.asked += 1
        return self.job


class Knows:
    """A pod whose job red-box once had, and a clock."""

    def __init__(self) -> None:
        self.at = 0.0
        self.redbox = Redbox()
        self.server = Written()
        node = ServedNode(slurm_cluster(), cast("Any", self.redbox))
        one = SimpleNamespace(cluster=node.cluster, client=node.client)
        clusters = SimpleNamespace(followed={"hpc1": one}, of_node=lambda _: node)
        self.pods = VirtualPods(
            cast("ObjectClient", self.server),
            cast("Clusters", clusters),
            cast("Any", self.redbox),
            "10.0.0.7",
            now=lambda: self.at,
        )

    async def look(self) -> None:
        """One, whole."""
        before = self.redbox.asked
        self.pods.look_at(PLACE)
        await until(lambda: self.redbox.asked > before and not self.pods._looking)


class Written(ApiServer):
    """Takes every write."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: list[str] = []
        condition = {"type": SUBMITTED, "status": "True"}
        self.pod = {**POD, "status": {"phase": "Running", "conditions": [condition]}}

    async def apply(self, _: ResourcePath, body: Object, **__: Any) -> None:
        self.phases.append(body["status"]["phase"])


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def known_pod() -> AsyncIterator[Knows]:
    knows = Knows()
    running = asyncio.create_task(knows.pods.run())
    try:
        await until(lambda: knows.redbox.asked and not knows.pods._looking)
        yield knows
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_job_that_red_box_does_not_know_for_a_while_is_not_lost() -> None:
    async with known_pod() as knows:
        knows.at = LOST_AFTER_S - 1
        await knows.look()
        assert knows.server.phases == []
        knows.redbox.job = RUNNING
        await knows.look()
        assert set(knows.server.phases) == {"Running"}


async def test_a_job_that_was_known_meanwhile_is_missed_anew() -> None:
    async with known_pod() as knows:
        rows, _ = knows.pods._rows["hpc1"]
        rows.take(RUNNING)  # the watch told of it
        knows.pods.look_at(PLACE)
        await until(lambda: knows.server.phases and not knows.pods._looking)
        rows.rows.clear()
        knows.at = LOST_AFTER_S
        await knows.look()
        assert set(knows.server.phases) == {"Running"}


async def test_a_job_that_red_box_does_not_know_for_long_is_lost() -> None:
    async with known_pod() as knows:
        knows.at = LOST_AFTER_S
        await knows.look()
        assert knows.server.phases == ["Failed"]
