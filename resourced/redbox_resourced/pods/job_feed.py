"""What one red-box says of the jobs of our pods: one watch for all of them, and the newest row of each.

resourced has the role `operator` there, so that ten thousand pods cost one stream and no request each. Only
rows of pods that are known and have not ended are kept; one that is missing is asked for singly, as the pod.
A row counts for a pod only if its owner is the pod's namespace and account: keys are for anybody to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import structlog

from redbox_api.client import RedboxClient
from redbox_api.errors import Unreachable
from redbox_api.models import FINAL_PHASES, Job, Phase
from redbox_resourced.partitions.retry_forever import keep_on
from redbox_resourced.pods.pod_view import BoundPod

log = structlog.get_logger(__name__)
ACTIVE = [phase.value for phase in Phase if phase not in FINAL_PHASES]
RowPlace = tuple[str, str, str, int]
"""Namespace, account, key, attempt."""


@dataclass
class JobRows:
    """One red-box's rows. `wanted` are the keys of our pods; `changed` is called with such a key."""

    cluster: str
    client: RedboxClient
    wanted: Collection[str]
    changed: Callable[[str], None]
    connected: Callable[[], None]
    fault: str = "red-box was not asked yet"
    rows: dict[RowPlace, Job] = field(default_factory=dict)

    def of_pod(self, pod: BoundPod) -> Job | None:
        """The newest that is known of a pod's job."""
        return self.rows.get((pod.namespace, pod.account, pod.key, pod.attempt))

    def take(self, job: Job) -> None:
        """A row that was asked for singly; one that the watch has brought since is newer."""
        self.rows.setdefault(_place(job), job)

    def forget(self, pod: BoundPod) -> None:
        """The pod has ended, or is gone."""
        self.rows.pop((pod.namespace, pod.account, pod.key, pod.attempt), None)

    async def run(self) -> None:
        """Follow until cancelled."""
        await keep_on(self._follow, self._failed, first_pause_s=0.25)

    async def _follow(self) -> None:
        """List what is not final, then watch everything from there."""
        revision = ""
        rows: dict[RowPlace, Job] = {}
        async for page in self.client.list_jobs(limit=500, phase=ACTIVE):
            rows |= {_place(job): job for job in page.items if job.key in self.wanted}
            revision = revision or page.revision
        self.rows, self.fault = rows, ""
        self.connected()
        async for event in self.client.watch_jobs(revision):
            if event.type == "error":
                raise Unreachable(event.message or "the watch of jobs failed")
            if event.job is not None and event.job.key in self.wanted:
                self._take(event.job, gone=event.type == "gone")

    def _take(self, job: Job, *, gone: bool) -> None:
        if gone:
            self.rows.pop(_place(job), None)
        else:
            self.rows[_place(job)] = job
        self.changed(job.key)

    def _failed(self, why: str) -> None:
        if why != self.fault:
            log.warning("jobs unknown", cluster=self.cluster, error=why)
        self.fault = why


def _place(job: Job) -> RowPlace:
    return job.owner.namespace, job.owner.account, job.key, job.attempt
