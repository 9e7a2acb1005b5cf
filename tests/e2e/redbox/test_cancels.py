"""Jobs that are cancelled in Slurm, by somebody or since a node could not launch them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from redbox_api.client import RedboxClient
from redbox_api.models import Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
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


def launch_again(login: Host, job_id: str) -> None:
    """Requeue a job that may not be requeued, and have it start now, not in two minutes.

    It is held meanwhile: one that starts while it may be requeued is held by Slurm after its failed launch.
    """

    def state() -> str:
        return login.run("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T").stdout

    login.run("scontrol", "update", f"jobid={job_id}", "requeue=1")
    login.run("scontrol", "requeuehold", job_id)
    wait_until(lambda: state().strip() == "PENDING", 60, f"{job_id} was not requeued")
    login.run("scontrol", "update", f"jobid={job_id}", "requeue=0", "starttime=now")
    time.sleep(2)  # slurmd launches nothing that was made in the second in which it killed the run before
    login.run("scontrol", "release", job_id)
    wait_until(lambda: state().strip() == "CANCELLED", 60, f"{job_id} was not launched again")


async def test_a_job_that_its_node_cannot_launch_has_failed_without_a_sign_of_a_start(
    bed: Bed, server: RedboxServer, alice: RedboxClient
) -> None:
    """One that had started before, and has written, is lost; a DELETE afterwards changes no end.

    Slurm drains the node of each, also of an array's two tasks: they are more than there are.
    """
    twice = await begun(alice, requeue=False)
    first = await alice.get_job(twice)
    server.login.run("touch", MARK, user="alice")
    try:
        await asyncio.to_thread(launch_again, server.login, str(first.job_id))
        resume_what_slurm_drained(bed)
        keys = [await submit(alice, "echo begun", **NO_REQUEUE, **fields) for fields in ({}, ARRAY)]
        again, *jobs = await asyncio.gather(*(ended(alice, key) for key in (twice, *keys)))
    finally:
        server.login.run("rm", "-f", MARK)
        resume_what_slurm_drained(bed)
    for job in jobs:
        assert (job.phase, job.state, job.reason) == (Phase.FAILED, "CANCELLED", "LaunchFailed"), job
        assert job.no_sign_of_start
        assert "before its script began" in (job.message or "")
    assert (again.phase, again.state, again.reason) == (Phase.LOST, "CANCELLED", "LaunchFailed"), again
    assert (again.run, again.no_sign_of_start) == (2, False)
    assert f"The run before had started at {first.started_at:%H:%M:%S} UTC" in (again.message or "")
    for job in (again, *jobs):
        (deleted,) = await alice.cancel_job(job.key)
        assert (deleted.phase, deleted.reason, deleted.message) == (job.phase, job.reason, job.message)
