"""What red-box itself may use and how it makes files is nothing of its users' jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from tests.e2e.harness.redbox_jobs import ended, log_of, new_key, submit
from tests.e2e.harness.redbox_server import RedboxServer, running

SHOW = "ulimit -S -a; ulimit -H -a; umask"
USUAL = 1024
ODD = ("prlimit", f"--nofile={USUAL}:", "sh", "-c", 'umask 077; exec "$@"', "sh")


@pytest.fixture(scope="module")
def odd_server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed, wrapper=ODD) as server:
        yield server


async def test_a_job_has_the_limits_and_the_umask_of_a_plain_sbatch(
    bed: Bed, odd_server: RedboxServer
) -> None:
    plain = _plain_sbatch(bed)
    async with odd_server.client_of_account("alices") as alice:
        key = await submit(alice, SHOW)
        await ended(alice, key)
        through_redbox = await log_of(alice, key)
    assert through_redbox == plain


def _plain_sbatch(bed: Bed) -> str:
    """What a job says that alice submits where she has logged in."""
    login = bed.host("login")
    output = f"/home/alice/{new_key()}.out"
    sbatch = f"ulimit -S -n {USUAL}; sbatch --wait --output={output} --wrap '{SHOW}' >&2"
    login.run("su", "--login", "alice", "--command", sbatch)
    return login.run("cat", output, user="alice").stdout
