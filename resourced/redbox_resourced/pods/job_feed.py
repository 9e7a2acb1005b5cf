"""The jobs of one red-box as pods need them: one watch for all of them, and the newest row of each.

resourced has the role `operator` there, so that ten thousand pods cost one stream and no request each. Only
rows of pods that exist and have not ended are kept, and active rows of pods that are not there, for `ending`.
A missing row is requested by itself, as the pod's account. A row counts for a pod only if its owner is the
pod's namespace and account: anybody can choose keys, and attempts without number, so that rows of other
owners and attempts are not even kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from redbox_api.client import RedboxClient
from redbox_api.feed import Feed, Resume, RowKey, list_active_jobs
from redbox_api.models import FINAL_PHASES, Job, WatchEvent
from redbox_kube.api.objects import ApiError
from redbox_resourced.pods.pod_view import BoundPod
from redbox_shared.backoff import Backoff

log = structlog.get_logger(__name__)
BACKOFF = Backoff(0.25, 10.0)


@dataclass
class PodJobFeed:
    """One red-box's rows. `is_wanted`: it is the row of a pod of ours; `changed` is called with its key."""

    cluster: str
    client: RedboxClient
    is_wanted: Callable[[RowKey], bool]
    changed: Callable[[str], None]
    connected: Callable[[], None]
    fault: str = "red-box has not answered yet"
    rows: dict[RowKey, Job] = field(default_factory=dict)
    unclaimed: dict[RowKey, Job] = field(default_factory=dict)
    """Jobs of pods, not final, whose pod is not there or has ended."""

    def of_pod(self, pod: BoundPod) -> Job | None:
        return self.rows.get(row_key_of(pod))

    def take(self, job: Job) -> None:
        """Keep a row that was requested by itself; a row that the watch has brought since is newer."""
        self.unclaimed.pop(RowKey.of(job), None)
        self.rows.setdefault(RowKey.of(job), job)

    def drop_events(self, job: Job) -> None:
        """Of a row whose events are published: ten thousand rows would keep all of them."""
        if job.pod is not None and job.pod.events and self.rows.get(RowKey.of(job)) is job:
            report = job.pod.model_copy(update={"events": []})
            self.rows[RowKey.of(job)] = job.model_copy(update={"pod": report})

    def forget(self, pod: BoundPod) -> None:
        row = self.rows.pop(row_key_of(pod), None)
        if row is not None:
            self._keep_unclaimed(row)

    async def run(self) -> None:
        feed: Feed[WatchEvent] = Feed(
            self._list,
            self.client.watch_jobs,
            self._on_event,
            self._on_failure,
            backoff=BACKOFF,
            retry_on=(ApiError, ValueError),
            resume=Resume.AFTER_CLEAN_END,
            share=self.client.share,
        )
        await feed.run()

    async def _list(self) -> str:
        rows: dict[RowKey, Job] = {}
        unclaimed: dict[RowKey, Job] = {}

        def take(job: Job) -> None:
            if self.is_wanted(RowKey.of(job)):
                rows[RowKey.of(job)] = job
            elif job.is_pod:
                unclaimed[RowKey.of(job)] = job

        revision = await list_active_jobs(self.client, take)
        self.rows, self.unclaimed, self.fault = rows, unclaimed, ""
        self.connected()
        return revision

    def _on_event(self, event: WatchEvent) -> None:
        if event.job is None:
            return
        key = RowKey.of(event.job)
        self.unclaimed.pop(key, None)
        is_gone = event.type == "gone"
        if self.is_wanted(key):
            if is_gone:
                self.rows.pop(key, None)
            else:
                self.rows[key] = event.job
            self.changed(event.job.key)
        elif not is_gone:
            self._keep_unclaimed(event.job)

    def _keep_unclaimed(self, job: Job) -> None:
        if job.is_pod and job.phase not in FINAL_PHASES:
            self.unclaimed[RowKey.of(job)] = job

    def _on_failure(self, why: str) -> None:
        if why != self.fault:
            log.warning("jobs unknown", cluster=self.cluster, error=why)
        self.fault = why


def row_key_of(pod: BoundPod) -> RowKey:
    """The row that counts for this pod."""
    return RowKey(pod.key, pod.attempt, pod.namespace, pod.account)
