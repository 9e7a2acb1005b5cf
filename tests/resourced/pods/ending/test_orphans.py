"""A job whose pod is gone is cancelled, and no job because of a half list or a deleted Node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from redbox_api.client import RedboxClient
from redbox_api.feed import RowKey
from redbox_api.models import Job, OwnerRef, Phase
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiUnreachable, ResourcePath
from redbox_resourced.pods.ending.orphans import OrphanCleanup
from redbox_resourced.pods.informer import PodInformer
from redbox_resourced.pods.job_feed import PodJobFeed
from redbox_resourced.pods.pod_view import BoundPod, read_pod
from redbox_resourced.pods.reported.pod_events import PodEvents
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster
from tests.resourced.pods.factories import manifest, pod_job
from tests.resourced.pods.pod_life_harness import MemoryRedbox

OLD, YOUNG = "2026-11-20T00:00:00Z", "2026-11-21T13:30:00Z"


class Scene:
    """A red-box with one job of a pod; Kubernetes has the pod only if a test creates it."""

    def __init__(
        self, *, node_since: str = OLD, orphan_policy: str = "Report", job: Job | None = None
    ) -> None:
        self.api = FakeApiServer()
        self.redbox = MemoryRedbox()
        job = job or pod_job()
        self.redbox.jobs[job.key] = job
        self.informer = SimpleNamespace(synced=True, pods={}, node_since=lambda _: node_since)
        client = cast("RedboxClient", self.redbox)
        self.feed = PodJobFeed("hpc1", client, lambda _: False, lambda _: None, lambda: None, fault="")
        self.feed._keep_unclaimed(job)
        cluster = slurm_cluster(orphanPolicy=orphan_policy)
        self.cleanup = OrphanCleanup(
            self.api.client,
            cast("PodInformer", self.informer),
            lambda: {"hpc1": self.feed},
            lambda: {"hpc1": cluster},
            PodEvents(self.api.client),
        )

    async def lists(self, times: int) -> list[str]:
        """What red-box was asked after so many lists."""
        for _ in range(times):
            await self.cleanup.clean_up()
        return self.redbox.asked


async def test_a_job_without_its_pod_is_cancelled_after_two_lists_and_without_grace() -> None:
    scene = Scene()
    assert await scene.lists(1) == []
    assert await scene.lists(1) == ["DELETE force as resourced"]
    assert [(owner.namespace, owner.account) for owner in scene.redbox.owners if owner] == [
        ("alice", "default")
    ]


async def test_a_pod_that_the_api_server_has_keeps_its_job() -> None:
    scene = Scene()
    scene.api.put(ResourcePath(kinds.POD, "train", "alice"), manifest())
    assert await scene.lists(5) == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_job_that_lives_although_its_pod_has_ended_is_cancelled_and_the_pod_says_so(
    phase: str,
) -> None:
    """Red-box has shown an end that was none: a pod's phase never goes back."""
    scene = Scene(node_since=YOUNG)
    body = manifest({"phase": phase})
    scene.api.put(ResourcePath(kinds.POD, "train", "alice"), body)
    scene.informer.pods["alice", "train"] = read_pod(body)
    assert await scene.lists(1) == []
    assert await scene.lists(1) == ["DELETE force as resourced"]
    (event,) = scene.api.events
    assert (event["reason"], "Slurm job 7 lives" in event["message"]) == ("JobOutlivesPod", True)


@pytest.mark.parametrize(
    "other", [{"attempt": 2}, {"owner": OwnerRef(cluster="prod", namespace="alice", account="other")}]
)
async def test_a_job_with_the_key_of_a_pod_that_has_ended_may_be_anothers(other: dict[str, Any]) -> None:
    """Anybody can choose keys: the pod gets no event about it."""
    scene = Scene(node_since=YOUNG, job=pod_job().model_copy(update=other))
    body = manifest({"phase": "Succeeded"})
    scene.api.put(ResourcePath(kinds.POD, "train", "alice"), body)
    scene.informer.pods["alice", "train"] = read_pod(body)
    assert await scene.lists(3) == []
    assert scene.api.events == []


async def test_a_pod_of_the_same_name_is_another_one() -> None:
    scene = Scene()
    scene.api.put(ResourcePath(kinds.POD, "train", "alice"), manifest(metadata={"uid": "recreated"}))
    assert await scene.lists(2) == ["DELETE force as resourced"]


async def test_lists_that_fail_do_not_count() -> None:
    scene = Scene()
    await scene.lists(1)
    scene.api.fail(ApiUnreachable("away"), verb="list", times=3)
    for _ in range(3):
        with pytest.raises(ApiUnreachable):
            await scene.cleanup.clean_up()
    assert scene.redbox.asked == []


async def test_absence_must_be_seen_in_a_row() -> None:
    scene = Scene()
    await scene.lists(1)
    path = ResourcePath(kinds.POD, "train", "alice")
    scene.api.put(path, manifest())
    await scene.lists(1)
    scene.api.remove(path)
    assert await scene.lists(1) == []


@pytest.mark.parametrize("node_since", [YOUNG, ""])
async def test_where_the_node_was_deleted_the_policy_decides(node_since: str) -> None:
    assert await Scene(node_since=node_since).lists(5) == []
    cancelled = await Scene(node_since=node_since, orphan_policy="Cancel").lists(2)
    assert cancelled == ["DELETE force as resourced"]


async def test_nothing_is_cancelled_before_the_pods_are_listed() -> None:
    scene = Scene()
    scene.informer.synced = False
    assert await scene.lists(5) == []


async def test_nothing_is_cancelled_while_red_box_is_away() -> None:
    scene = Scene()
    scene.feed.fault = "away"
    assert await scene.lists(5) == []


@pytest.mark.parametrize(
    "job",
    [
        pod_job().model_copy(update={"is_pod": False}),
        pod_job(Phase.SUCCEEDED),
        pod_job(cancel_requested=True),
    ],
)
async def test_jobs_of_others_and_those_that_end_are_left_alone(job: Job) -> None:
    assert await Scene(job=job).lists(5) == []


async def test_a_job_of_a_pod_that_is_forgotten_is_a_suspect_until_it_ends() -> None:
    feed = PodJobFeed("hpc1", cast("Any", None), lambda _: True, lambda _: None, lambda: None)
    feed.take(pod_job())
    pod = SimpleNamespace(key="pod-uid", attempt=1, namespace="alice", account="default")
    feed.forget(cast("BoundPod", pod))
    assert list(feed.unclaimed) == [RowKey.of(pod_job())]
    feed.take(pod_job())
    assert feed.unclaimed == {}
