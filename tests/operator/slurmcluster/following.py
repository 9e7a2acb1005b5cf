"""A link that follows a red-box, and what it told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from redbox_api.client import RedboxClient
from redbox_api.feed import RowKey
from redbox_api.models import Job, OwnerRef, Phase
from redbox_api.requests.sender import Deadlines
from redbox_clusters.slurm_cluster import SlurmCluster
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmcluster.status_lag import StatusLag
from tests.bench.scripted_redbox import ScriptedRedbox
from tests.operator.factories import slurm_cluster

OWNER = OwnerRef(cluster="kube", namespace="farm", account="default")


STATES = {Phase.SUCCEEDED: "COMPLETED", Phase.FAILED: "FAILED", Phase.CANCELLED: "CANCELLED"}


def job(key: str, phase: Phase, **facts: Any) -> Job:
    facts = {"job_id": "7", "state": STATES.get(phase), **facts}
    return Job(key=key, attempt=1, owner=OWNER, user="alice", phase=phase, **facts)


def row_key(key: str) -> RowKey:
    return RowKey(key, 1, "farm", "default")


class Following:
    """A link, and what it told."""

    def __init__(
        self, redbox: ScriptedRedbox, cluster: SlurmCluster | None = None, *, answer_s: float = 60
    ) -> None:
        self.changed: list[str] = []
        self.turns: list[bool | None] = []
        self.partitions_changed: list[str] = []
        deadlines = Deadlines(connect=60, answer=answer_s, quiet=60)
        client = RedboxClient(redbox.endpoint, ca_bundle=redbox.ca.decode(), deadlines=deadlines)
        self.link = RedboxLink(
            cluster or slurm_cluster(),
            client,
            changed=self.changed.append,
            turned=lambda link: self.turns.append(link.reachable),
            namespace_of={"one": "farm", "two": "farm", "three": "farm", "other": "barn"}.get,
            partitions_changed=self.partitions_changed.append,
            lag=StatusLag(),
        )

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():  # noqa: ASYNC110 (what is waited for sets no event)
                await asyncio.sleep(0.01)


@asynccontextmanager
async def following(
    redbox: ScriptedRedbox, cluster: SlurmCluster | None = None, **more: float
) -> AsyncIterator[Following]:
    made = Following(redbox, cluster, **more)
    running = asyncio.create_task(made.link.run())
    try:
        await made.until(lambda: made.link.synced)
        yield made
    finally:
        running.cancel()
        await asyncio.wait({running})
