"""The usage of jobs, over HTTP."""

from __future__ import annotations

import httpx
import pytest

from redbox.core.workload_manager import PastUsage, StepUsage
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


async def test_the_caller_is_told_what_own_ended_jobs_used(stand: Stand, alice: httpx.AsyncClient) -> None:
    job_id = await stand.submitted("k1")
    stand.slurm.start(job_id)
    stand.slurm.end(job_id)
    await stand.until("k1", lambda job: job["phase"] == "Succeeded")
    mark = stand.slurm.ever[-1].mark
    stand.slurm.past.append(PastUsage(job_id, mark, None, 2, 60, 120, cpu_s=30.5, memory_bytes=4096))
    answer = (await alice.get("/v1/usage/ended", params={"job": ["k1.1", "k2.7"]})).json()
    assert answer == {
        "accounting": True,
        "items": [
            {
                "key": "k1",
                "attempt": 1,
                "cpus": 2,
                "cpuSeconds": 30.5,
                "allocatedCpuSeconds": 120,
                "memoryBytes": 4096,
                "elapsedSeconds": 60,
            }
        ],
    }


@pytest.mark.parametrize("jobs", [[], ["k1"], ["k1.0"], ["k1.1"] * 51, ["../k.1"]])
async def test_what_names_no_job_is_refused(alice: httpx.AsyncClient, jobs: list[str]) -> None:
    assert (await alice.get("/v1/usage/ended", params={"job": jobs})).status_code == 422
