"""A journal whose disk is full: no new submits, all else goes on, and room mends it without a restart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import Busy
from redbox_api.models import Job, JobRequest, Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.redbox_jobs import Reader, ended, log_of, new_key, script, started, submit
from tests.e2e.harness.redbox_server import NAME, RedboxServer, install


@pytest.fixture
def server(bed: Bed) -> Iterator[RedboxServer]:
    """Journal and audit on a disk of 16 megabytes."""
    install(bed)
    server = RedboxServer(bed)
    login = server.login
    login.run("mkdir", "-p", server.folder)
    login.run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", server.folder)
    try:
        server.introduce()
        server.start()
        yield server
    finally:
        if login.running(NAME):
            server.kill()
        login.run("umount", "--lazy", server.folder)  # what was killed may take a moment to let go
        server.remove()


@contextmanager
def full(host: Host, folder: str) -> Iterator[None]:
    host.run("dd", "if=/dev/zero", f"of={folder}/others", "bs=4096", check=False)
    try:
        yield
    finally:
        host.run("rm", f"{folder}/others")


async def test_new_submits_are_refused_in_words_what_runs_is_told_and_room_mends_it(
    server: RedboxServer,
) -> None:
    keys = [new_key() for _ in range(30)]
    others = jobs_of_alice(server.login)
    held = script("true", name="n" * 120, hold=True)
    async with server.client_of("alice") as alice:
        key = await submit(alice, "echo before", "exec sleep 600")
        job_id = (await started(alice, key)).job_id
        with full(server.login, server.folder):
            told = [await put(alice, one, held) for one in keys]
            refusals = [one for one in told if isinstance(one, Busy)]
            for refusal in refusals:
                assert re.search(r"journal .* cannot be written .*new submits are refused", str(refusal))
            assert len(refusals) > len(keys) / 2  # what SQLite has room for in its own file is taken
            assert (await alice.get_job(key)).job_id == job_id
            assert (await alice.whoami()).user == "alice"
            await Reader(alice, key).until_begins(b"before\n")
        jobs = jobs_of_alice(server.login) - others
        assert jobs == {job_id, *(one.job_id for one in told if isinstance(one, Job))}
        for one in keys:
            await alice.put_job(one, held)
        for one in (*keys, key):
            await alice.cancel_job(one)
            assert (await ended(alice, one)).phase is Phase.CANCELLED
        assert await log_of(alice, key) == "before\n"


def jobs_of_alice(login: Host) -> set[str]:
    return set(login.run("squeue", "--noheader", "--user=alice", "--format=%A").stdout.split())


async def put(client: RedboxClient, key: str, request: JobRequest) -> Job | Busy:
    """What a submit comes to."""
    try:
        return await client.put_job(key, request)
    except Busy as busy:
        return busy
