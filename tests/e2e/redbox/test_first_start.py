"""The first start ever, on a day when Slurm is away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import httpx
import pytest

from redbox_api.errors import Busy
from redbox_api.models import Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness.redbox_jobs import ended, submit
from tests.e2e.harness.redbox_server import STARTS_WITHIN_S, RedboxServer, install

WHY = "Slurm has never answered it"


@pytest.fixture
def new_server(bed: Bed) -> Iterator[RedboxServer]:
    """Started for the first time, with slurmctld dead."""
    install(bed)
    server = RedboxServer(bed)
    server.introduce()
    bed.host("ctl").kill("slurmctld")
    try:
        server.launch()
        yield server
    finally:
        bed.slurms[0].up()
        server.remove()


def is_told(server: RedboxServer, path: str, said: str) -> bool:
    """Whether anybody is told this there."""
    try:
        return said in httpx.get(f"{server.endpoint}{path}", verify=server.trust(), timeout=20).text
    except httpx.TransportError:
        return False


async def test_it_listens_and_says_what_it_waits_for_and_goes_on_once_slurm_is_there(
    bed: Bed, new_server: RedboxServer
) -> None:
    for path, said in (("/healthz", ""), ("/readyz", WHY)):
        look = partial(is_told, new_server, path, said)
        await asyncio.to_thread(wait_until, look, STARTS_WITHIN_S, f"{path} does not say {said!r}")
    async with new_server.client_of("alice") as alice:
        with pytest.raises(Busy, match=WHY) as busy:
            await submit(alice, "true")
        assert busy.value.retry_after
        at_the_socket = new_server.login.run(
            "curl", "-sS", "--unix-socket", new_server.socket, "http://redbox/v1/whoami", user="alice"
        )
        assert WHY in at_the_socket.stdout
        await asyncio.to_thread(bed.slurms[0].up)
        await asyncio.to_thread(new_server.wait_until_ready)
        assert (await ended(alice, await submit(alice, "true"))).phase is Phase.SUCCEEDED
