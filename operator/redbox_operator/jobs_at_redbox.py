"""What each red-box says of its jobs: one watch per SlurmCluster, and the newest row of every job.

A row counts for a SlurmJob only if its owner is that SlurmJob's namespace and service account: keys can be
chosen by anybody. Who is told of a change is the reconciler, by the job's key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import structlog

from redbox_api.client import RedboxClient
from redbox_api.errors import RedboxError, TooOld
from redbox_api.models import Job, OwnerRef
from redbox_kube.objects import ApiRefused, Objects
from redbox_kube.own_token import Account, OwnToken
from redbox_kube.slurm_cluster import SlurmCluster

log = structlog.get_logger(__name__)
LONGEST_PAUSE_S = 10.0


@dataclass
class RedboxWatch:
    """One SlurmCluster's red-box: its rows, kept new until it is left."""

    cluster: SlurmCluster
    objects: Objects
    account: Account
    changed: Callable[[str], None]
    rows: dict[tuple[str, int, str, str], Job] = field(default_factory=dict)
    reachable: bool = False
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        spec = self.cluster.spec
        token = OwnToken(self.objects, self.account, spec.audience)
        self.client = RedboxClient(spec.endpoint, token=token, ca_bundle=spec.ca_bundle.decode())
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.client.__aexit__(kind, error, trace)

    def row(self, key: str, attempt: int, namespace: str, account: str) -> Job | None:
        """The newest that is known of this owner's job."""
        return self.rows.get((key, attempt, namespace, account))

    async def cancel(self, key: str, owner: OwnerRef) -> list[Job]:
        """Cancel all attempts, and refuse those that may still come."""
        return await self.client.cancel_job(key, all_attempts=True, owner=owner)

    async def _run(self) -> None:
        failures = 0
        while True:
            try:
                async for _ in self._follow():
                    failures = 0
            except (RedboxError, ApiRefused, TimeoutError) as error:
                self.reachable = False
                failures += 1
                log.warning("watch", cluster=self.cluster.name, error=str(error))
            await asyncio.sleep(min(LONGEST_PAUSE_S, 0.5 * 2.0 ** min(failures, 6)))

    async def _follow(self) -> AsyncIterator[None]:
        """List, then watch from there; each step that went well is yielded."""
        revision = await self._list()
        yield
        with contextlib.suppress(TooOld):
            async for event in self.client.watch_jobs(revision):
                self.reachable = True
                if event.job is not None:
                    self._take(event.job, gone=event.type == "gone")
                yield

    async def _list(self) -> str:
        revision = ""
        async for page in self.client.list_jobs(limit=500):
            for job in page.items:
                self._take(job, gone=False)
            revision = revision or page.revision
        self.reachable = True
        return revision

    def _take(self, job: Job, *, gone: bool) -> None:
        place = (job.key, job.attempt, job.owner.namespace, job.owner.account)
        if gone:
            self.rows.pop(place, None)
        else:
            self.rows[place] = job
        self.changed(job.key)
