"""The journal is lost while a job runs, as when a disk is replaced: no second job, and no job forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from redbox.jobs.store.journal import FILE_NAME
from redbox_api.models import Phase
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness.redbox_jobs import ended, script, started, submit
from tests.e2e.harness.redbox_server import NAME, STARTS_WITHIN_S, RedboxServer, running


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed) as server:
        yield server


def lose_journal(server: RedboxServer) -> None:
    server.kill()
    files = [f"{server.folder}/{FILE_NAME}{end}" for end in ("", "-wal", "-shm")]
    server.login.run("rm", "--force", *files)


async def test_red_box_names_the_cure_submits_nothing_and_finds_the_job_again(server: RedboxServer) -> None:
    request = script("exec sleep 300")
    async with server.client_of("alice") as alice:
        job = await started(alice, await submit(alice, "exec sleep 300"))
    lose_journal(server)
    server.launch()
    gone = "red-box serves, though its journal was lost"
    await asyncio.to_thread(wait_until, lambda: not server.login.running(NAME), STARTS_WITHIN_S, gone)
    assert f"({job.job_id})" in server.log()
    assert "redbox recover" in server.log()
    config = f"--config={server.folder}/redbox.yaml"
    server.login.run(login_node.PROGRAM, "recover", "--user=alice", config, user=server.user)
    server.start()
    async with server.client_of("alice") as alice:
        again = await alice.put_job(job.key, request)
        assert again.job_id == job.job_id
        await alice.cancel_job(job.key)
        assert (await ended(alice, job.key)).phase is Phase.CANCELLED
