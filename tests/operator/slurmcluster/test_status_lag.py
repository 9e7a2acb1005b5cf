"""How late a status is counts from the row's change, also where the link to red-box was made in between."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from redbox_api.feed import RowKey
from redbox_api.models import Job, Phase
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_clusters.slurm_cluster import SLURM_CLUSTERS
from redbox_kube.api.objects import ResourcePath
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmcluster.reconciler import SlurmClusters
from tests.bench.scripted_redbox import ScriptedRedbox
from tests.operator.harness import Stand

WHERE = ResourcePath(SLURM_CLUSTERS, "hpc1")
RUNS = Stand.row_of(Phase.RUNNING)
ENDED = Stand.row_of(Phase.SUCCEEDED)
KEY = RowKey.of(RUNS)


class Followed:
    """A reconciler of SlurmJobs, and the links to a red-box of which the SlurmCluster may change."""

    def __init__(self, redbox: ScriptedRedbox, stand: Stand) -> None:
        self.redbox = redbox
        self.stand = stand
        self.clusters = SlurmClusters(
            stand.writer,
            ServiceAccountName("redbox-system", "redbox-operator"),
            stand.cache,
            stand.registry,
            wake_uid=print,
            wake_cluster=print,
        )

    async def connect(self, **spec: object) -> RedboxLink:
        """The link of the SlurmCluster with this spec, once it has listed the jobs."""
        authority = base64.b64encode(self.redbox.ca).decode()
        given = {"endpoint": self.redbox.endpoint, "caBundle": authority, "audience": "redbox.dev/hpc1/4711"}
        self.stand.api.put(WHERE, {"metadata": {"name": "hpc1", "uid": "4711"}, "spec": {**given, **spec}})
        self.clusters.updated(self.stand.api.objects[WHERE])
        link = self.stand.registry.get("hpc1")
        assert link is not None
        await until(lambda: link.synced)
        return link

    def lags(self) -> tuple[float, float]:
        """How many were measured, and their sum."""
        name = "redbox_operator_status_lag_seconds"
        values = [self.stand.metrics.registry.get_sample_value(f"{name}_{part}") for part in ("count", "sum")]
        return values[0] or 0.0, values[1] or 0.0


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (what is waited for sets no event)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("later", [RUNS, ENDED], ids=["runs", "has ended meanwhile"])
async def test_a_change_of_the_spec_does_not_make_a_late_status_punctual(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, later: Job
) -> None:
    """A list does not show a job that has ended: then its SlurmJob asks for it."""
    redbox, stand = ScriptedRedbox(), Stand(monkeypatch)
    followed, loop = Followed(redbox, stand), asyncio.get_running_loop()
    async with redbox.serving(tmp_path):
        running = asyncio.create_task(followed.clusters.run())
        await asyncio.sleep(0)
        try:
            first = await followed.connect()
            await stand.apply()
            redbox.put(RUNS)
            await until(lambda: first.row(KEY))
            changed_at = loop.time()
            redbox.rows[RUNS.key] = later
            assert await followed.connect(orphanPolicy="Cancel") is not first
            before, reconciled_at = followed.lags(), loop.time()
            await stand.look()
        finally:
            running.cancel()
            await asyncio.wait({running})
    assert stand.status["phase"] == later.phase
    count, total = (after - value for after, value in zip(followed.lags(), before, strict=True))
    assert count == 1
    assert total >= reconciled_at - changed_at
