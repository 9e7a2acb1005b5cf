"""The usage of running jobs, over HTTP."""

from __future__ import annotations

import httpx
import pytest

from redbox.core.workload_manager import StepUsage
from tests.redbox.http.harness import Stand


async def test_the_caller_is_told_what_own_running_jobs_use(stand: Stand, alice: httpx.AsyncClient) -> None:
    job_id = await stand.submitted("k1")
    stand.slurm.start(job_id)
    await stand.until("k1", lambda job: job["phase"] == "Running")
    stand.slurm.used["a step"] = StepUsage(job_id, "batch", 3.0, 4096)
    [used] = (await alice.get("/v1/usage")).json()["items"]
    assert (used["key"], used["attempt"], used["cpuSeconds"], used["memoryBytes"]) == ("k1", 1, 3.0, 4096)


@pytest.mark.parametrize("who", ["operator", "reader"])
async def test_who_has_no_jobs_is_told_of_none(stand: Stand, who: str) -> None:
    async with stand.by_token(stand.tokens[who]) as client:
        assert (await client.get("/v1/usage")).status_code == 403
