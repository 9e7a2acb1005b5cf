"""Rows of one red-box: those of our pods, and of nobody who chose a pod's key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from redbox_api.bodies import UNMETERED
from redbox_api.client import RedboxClient
from redbox_api.feed import RowKey
from redbox_api.models import Job, JobList, OwnerRef, Phase, WatchEvent
from redbox_kube.api.objects import ObjectClient
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.job_feed import PodJobFeed
from redbox_resourced.pods.pod_view import read_pod
from redbox_resourced.pods.reconciler import PodReconciler

OURS = RowKey("uid-1", 1, "alice", "default")
FOREIGN = (
    RowKey("uid-1", 2, "alice", "default"),
    RowKey("uid-1", 1, "mallory", "default"),
    RowKey("uid-1", 1, "alice", "other"),
    RowKey("uid-2", 1, "alice", "default"),
)
OWNER = {"apiVersion": "redbox.dev/v1", "kind": "SlurmJob", "name": "cow", "uid": "uid-1", "controller": True}
POD = read_pod(
    {
        "metadata": {
            "namespace": "alice",
            "name": "cow-job",
            "uid": "u",
            "creationTimestamp": "2026-11-21T12:59:58Z",
            "ownerReferences": [OWNER],
        },
        "spec": {"nodeName": "hpc1.debug", "containers": [{"name": "companion", "image": "i"}]},
    }
)


def row(key: RowKey, phase: Phase = Phase.RUNNING) -> Job:
    owner = OwnerRef(cluster="prod", namespace=key.namespace, account=key.account)
    return Job(key=key.key, attempt=key.attempt, owner=owner, user="alice", phase=phase)


class Redbox:
    """Lists and then shows the same rows, and is silent."""

    share = UNMETERED

    async def list_jobs(self, **_: Any) -> AsyncIterator[JobList]:
        yield JobList(items=[row(key) for key in (OURS, *FOREIGN)], revision="e.1")

    async def watch_jobs(self, _: str) -> AsyncIterator[WatchEvent]:
        for number, key in enumerate((*FOREIGN, OURS), 2):
            yield WatchEvent(type="job", revision=f"e.{number}", job=row(key, Phase.SUCCEEDED))
        await asyncio.Event().wait()


async def test_rows_of_other_owners_and_attempts_with_a_pods_key_are_not_kept() -> None:
    pods = PodReconciler(
        cast("ObjectClient", None), cast("ClusterRegistry", None), cast("Any", None), "10.0.0.7"
    )
    pods.informer._store(POD.place, POD)
    changed: list[str] = []
    feed = PodJobFeed(
        "hpc1", cast("RedboxClient", Redbox()), pods._is_row_of_pod, changed.append, lambda: None
    )
    running = asyncio.create_task(feed.run())
    async with asyncio.timeout(60):
        while not changed:  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0)
    running.cancel()
    assert (changed, list(feed.rows)) == (["uid-1"], [OURS])
    assert feed.rows[OURS].phase is Phase.SUCCEEDED
