"""Ranks that talk to each other over three nodes: started by a script, and each in a container of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from redbox_api.models import JobRequest, Phase
from redbox_bed.bed import Bed
from tests.e2e.harness.mpi_image import BUILD, IMAGE, PINGPONG
from tests.e2e.harness.redbox_jobs import ended, log_of, new_key
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.slurm_release import launcher, skip_without_pmix

WAYS: dict[str, dict[str, Any]] = {
    "a script": {"batch": f"#!/bin/sh\nLAUNCHER {PINGPONG}\n"},
    "a container": {
        "container": {
            "image": IMAGE,
            "command": [PINGPONG],
            "options": {"mpi": "pmix", "binds": ["/usr", "/etc/openmpi"]},
        }
    },
}


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed) as server:
        server.login.run("sh", "-c", BUILD, user="alice", timeout=120)
        yield server


@pytest.mark.parametrize("way", WAYS)
async def test_ranks_find_each_other_on_three_nodes_and_talk(
    server: RedboxServer, bed: Bed, way: str
) -> None:
    if way == "a container":  # in which only srun starts them
        skip_without_pmix(bed)
    job = {**WAYS[way], "resources": {"nodes": 3, "tasksPerNode": 1, "time": "2"}}
    if "batch" in job:
        job["batch"] = job["batch"].replace("LAUNCHER", launcher(bed))
    key = new_key()
    async with server.client_of("alice") as alice:
        await alice.put_job(key, JobRequest.model_validate(job))
        end = await ended(alice, key)
        said = await log_of(alice, key)
    assert end.phase is Phase.SUCCEEDED, said
    assert set(re.findall(r"rank ([0-9]) of 3 on (n[0-9])", said)) == {("0", "n1"), ("1", "n2"), ("2", "n3")}
    assert set(re.findall(r"0<->([12]) .* a round trip", said)) == {"1", "2"}
