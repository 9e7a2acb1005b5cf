"""A site that hides jobs from everybody but their own user: red-box looks as each user, and misses none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redbox_api.errors import Busy
from redbox_api.models import Phase
from redbox_bed.bed import Bed
from tests.e2e.harness.redbox_jobs import ended, log_of, started, submit, until
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.slurm_settings import configured

HIDDEN = "PrivateData=accounts,events,jobs,nodes,partitions,reservations,usage,users"


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with configured(bed, HIDDEN), running(bed) as server:
        yield server


async def test_it_sees_the_jobs_of_all_its_users_and_their_ends_though_slurm_hides_them_from_it(
    server: RedboxServer,
) -> None:
    async with server.client_of("alice") as alice, server.client_of("bob") as bob:
        keys = {}
        for user, client in (("alice", alice), ("bob", bob)):
            keys[user] = await submit(client, f"echo {user}", "exec sleep 600")
            await started(client, keys[user])
        as_redbox = server.login.run("squeue", "--noheader", "--format=%u", user=server.user)
        assert as_redbox.stdout.split() == [], "Slurm hides nothing here"
        for user, client in (("alice", alice), ("bob", bob)):
            job = await until(client, keys[user], lambda job: job.stale_since is None)
            assert (job.user, job.phase) == (user, Phase.RUNNING)
            await client.cancel_job(keys[user])
            assert (await ended(client, keys[user])).phase is Phase.CANCELLED
            assert await log_of(client, keys[user]) == f"{user}\n"
        done = await submit(bob, "exit 3")
        assert (await ended(bob, done)).exit_code == 3
        cluster = await bob.cluster()
        with pytest.raises(Busy, match="AdminLevel=Operator"):
            await bob.partitions()
    assert cluster.nodes == {}
    for words in (
        "hides nodes and partitions",
        "hides jobs: they are read through each user's own agent",
    ):
        assert any(words in warning for warning in cluster.warnings)
