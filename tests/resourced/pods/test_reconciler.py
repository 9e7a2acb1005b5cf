"""What one look at a pod cannot say now is said later, and ends nothing else; a job is not lost at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from redbox_api.bodies import UNMETERED
from redbox_api.models import Job, JobList, OwnerRef, Phase
from redbox_clusters.names import LABEL_VIRTUAL
from redbox_clusters.virtual_pods import SUBMITTED
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiUnreachable, Object, ResourcePath
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods import reconciler
from redbox_resourced.pods.exit_status import JobRefusal
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission_errors import SubmissionRejected
from redbox_shared.backoff import Backoff
from redbox_shared.job_end import LOST_AFTER_S
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster

NODE: Object = {
    "metadata": {"labels": {LABEL_VIRTUAL: "true"}},
    "spec": {"providerID": "redbox://hpc1/debug"},
}
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


def api_server(pod: Object = POD) -> FakeApiServer:
    """One node with one pod."""
    api = FakeApiServer()
    api.put(ResourcePath(kinds.NODE, "hpc1.debug"), NODE)
    api.put(ResourcePath(kinds.POD, "cow-job", "alice"), pod)
    return api


def away_at_first_write() -> FakeApiServer:
    api = api_server()
    api.fail(ApiUnreachable("the API server does not answer: refused"), verb="apply", times=1)
    return api


def phases(api: FakeApiServer) -> list[str]:
    return [body["status"]["phase"] for *_, body in api.applied]


class OneCluster:
    """One SlurmCluster, which serves every node."""

    followed: ClassVar[dict[str, Any]] = {}

    def of_node(self, _: str) -> ClusterConnection:
        return cast("ClusterConnection", object())


class AllRefused(PodReconciler):
    """Red-box will never have any of them."""

    asked = 0

    async def _reconcile_job(self, pod: BoundPod, connection: ClusterConnection) -> float | None:  # noqa: ARG002
        self.asked += 1
        raise SubmissionRejected(JobRefusal("no mapping for this account"))


async def test_a_refusal_that_cannot_be_written_is_written_later() -> None:
    api = away_at_first_write()
    pods = AllRefused(api.client, cast("ClusterRegistry", OneCluster()), cast("Any", None), "10.0.0.7")
    running = asyncio.create_task(pods.run())
    async with asyncio.timeout(60):
        await until(lambda: api.applied)
        assert "no mapping" in str(api.applied)
        pods.enqueue(("alice", "cow-job"))  # the event of its own write
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

    share = UNMETERED

    def __init__(self) -> None:
        self.too_old: set[str] = set()
        self.job: Job | None = None
        self.asked = 0

    async def list_jobs(self, **_: Any) -> AsyncIterator[JobList]:
        yield JobList(items=[], revision="1")

    async def watch_jobs(self, _: str) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield None

    async def submitted_job(self, _pod: BoundPod, _node: ClusterConnection) -> Job | None:
        self.asked += 1
        return self.job


class Harness:
    """A pod whose job red-box once had, and a clock."""

    def __init__(self) -> None:
        self.at = 0.0
        self.redbox = Redbox()
        condition = {"type": SUBMITTED, "status": "True"}
        self.api = api_server({**POD, "status": {"phase": "Running", "conditions": [condition]}})
        node = ClusterConnection(slurm_cluster(), cast("Any", self.redbox))
        feed = SimpleNamespace(cluster=node.cluster, client=node.client)
        clusters = SimpleNamespace(followed={"hpc1": feed}, of_node=lambda _: node)
        self.pods = PodReconciler(
            self.api.client,
            cast("ClusterRegistry", clusters),
            cast("Any", self.redbox),
            "10.0.0.7",
            now=lambda: self.at,
        )

    async def look(self) -> None:
        """One, whole."""
        before = self.redbox.asked
        self.pods.enqueue(PLACE)
        await until(lambda: self.redbox.asked > before and not self.pods.queue.unfinished)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def submitted_pod() -> AsyncIterator[Harness]:
    harness = Harness()
    running = asyncio.create_task(harness.pods.run())
    try:
        await until(lambda: harness.redbox.asked and not harness.pods.queue.unfinished)
        yield harness
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_job_that_red_box_does_not_know_for_a_while_is_not_lost() -> None:
    async with submitted_pod() as harness:
        harness.at = LOST_AFTER_S - 1
        await harness.look()
        assert phases(harness.api) == []
        harness.redbox.job = RUNNING
        await harness.look()
        assert set(phases(harness.api)) == {"Running"}


async def test_a_job_that_was_known_meanwhile_is_missed_again() -> None:
    async with submitted_pod() as harness:
        feed = harness.pods.job_feeds["hpc1"]
        feed.take(RUNNING)  # as its watch does
        harness.pods.enqueue(PLACE)
        await until(lambda: phases(harness.api) and not harness.pods.queue.unfinished)
        feed.rows.clear()
        harness.at = LOST_AFTER_S
        await harness.look()
        assert set(phases(harness.api)) == {"Running"}


async def test_a_job_that_red_box_does_not_know_for_long_is_lost() -> None:
    async with submitted_pod() as harness:
        harness.at = LOST_AFTER_S
        await harness.look()
        assert phases(harness.api) == ["Failed"]


async def test_neither_a_retry_nor_a_change_after_the_shutdown_starts_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconciler, "BACKOFF", Backoff(2.0, 60.0, jitter=0.0))
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    api = away_at_first_write()
    pods = AllRefused(api.client, cast("ClusterRegistry", OneCluster()), cast("Any", None), "10.0.0.7")
    running = asyncio.create_task(pods.run())
    await until(lambda: api.writes == 1 and not pods.queue.unfinished)  # it failed: a retry is due
    running.cancel()
    await asyncio.wait({running})
    pods.enqueue(PLACE)
    await asyncio.sleep(2.2)
    assert (errors, pods.asked, api.writes) == ([], 1, 1)
