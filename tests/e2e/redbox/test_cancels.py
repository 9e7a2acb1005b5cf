"""Jobs that are cancelled in Slurm, by somebody or since a node could not launch them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from redbox_api.client import RedboxClient
from redbox_api.models import Job, Phase
from redbox_bed.bed import Bed
from tests.e2e.harness.redbox_jobs import Reader, ended, new_key, submit, until
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.slurm_nodes import resume_what_slurm_drained
from tests.e2e.harness.slurm_settings import configured

PROLOG = "/usr/local/sbin/fails-for-a-mark"
MARK = f"/home/alice/{new_key()}"
NO_REQUEUE = {"options": ["--no-requeue"]}
ARRAY = {"array": "0-1"}


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    """A red-box whose Slurm has a prolog that fails as long as a file is there."""
    for name in bed.plan.clusters[0].hosts:
        bed.host(name).write(PROLOG, f"#!/bin/sh\n[ ! -e {MARK} ]\n".encode(), mode=0o755)
    with configured(bed, f"Prolog={PROLOG}"), running(bed) as server:
        yield server


async def begun(alice: RedboxClient, *, requeue: bool) -> str:
    key = await submit(alice, "echo begun", "exec sleep 600", **({} if requeue else NO_REQUEUE))
    await Reader(alice, key).until_begins(b"begun\n")
    return key


@pytest.mark.parametrize("requeue", [True, False])
async def test_the_message_has_who_cancelled_a_job_while_the_queue_still_shows_it(
    server: RedboxServer, alice: RedboxClient, *, requeue: bool
) -> None:
    """What has written is no failed launch, whoever cancelled it."""
    said = {"alice": "It was cancelled by alice.", "root": "It was cancelled by an administrator (root)."}
    keys = dict(zip(said, await asyncio.gather(*(begun(alice, requeue=requeue) for _ in said)), strict=True))
    for user, key in keys.items():
        job = await alice.get_job(key)
        server.login.run("scancel", str(job.job_id), user=user)
    for user, key in keys.items():
        job = await until(alice, key, lambda job, user=user: job.message == said[user])  # type: ignore[misc]
        assert (job.phase, job.no_sign_of_start) == (Phase.CANCELLED, False)
        assert server.login.run("squeue", "--noheader", "--states=all", f"--jobs={job.job_id}").stdout


async def test_a_job_that_its_node_cannot_launch_has_failed_without_a_sign_of_a_start(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    """Slurm drains the nodes of a plain job and of an array's two tasks: they are as many as there are."""
    server.login.run("touch", MARK, user="alice")
    try:
        keys = [await submit(alice, "echo begun", **NO_REQUEUE, **fields) for fields in ({}, ARRAY)]
        jobs: list[Job] = await asyncio.gather(*(ended(alice, key) for key in keys))
    finally:
        server.login.run("rm", "-f", MARK)
        resume_what_slurm_drained(bed)
    for job in jobs:
        assert (job.phase, job.state, job.reason) == (Phase.FAILED, "CANCELLED", "LaunchFailed"), job
        assert job.no_sign_of_start
        assert "before its script began" in (job.message or "")
