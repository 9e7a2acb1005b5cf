"""A cluster of a federation: nothing is submitted unless the administrator allows it.

The federation has this one cluster: whose jobs another cluster would take is not shown here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from redbox_api.errors import NotAccepted
from redbox_api.models import Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness.redbox_jobs import ended, log_of, submit
from tests.e2e.harness.redbox_server import running

NAME = "fed1"


@pytest.fixture
def federated(bed: Bed) -> Iterator[None]:
    controller, cluster = bed.host("ctl"), bed.plan.clusters[0].name

    def is_in_it() -> bool:
        return NAME in controller.run("scontrol", "show", "federation").stdout

    controller.run("sacctmgr", "-iQ", "add", "federation", NAME, f"clusters={cluster}")
    try:
        wait_until(is_in_it, 120, "the cluster did not join the federation")
        yield
    finally:
        controller.run("sacctmgr", "-iQ", "delete", "federation", NAME)
        wait_until(lambda: not is_in_it(), 120, "the cluster did not leave the federation")


@pytest.mark.usefixtures("federated")
def test_submits_are_refused_by_name_and_taken_once_they_are_allowed(bed: Bed) -> None:
    async def refused() -> None:
        async with server.client_of("alice") as alice:
            with pytest.raises(NotAccepted, match=f"in federation {NAME}"):
                await submit(alice, "true")

    async def taken() -> None:
        async with server.client_of("alice") as alice:
            key = await submit(alice, "echo taken")
            assert (await ended(alice, key)).phase is Phase.SUCCEEDED
            assert await log_of(alice, key) == "taken\n"

    with running(bed) as server:
        asyncio.run(refused())
    with running(bed, sections={"slurm": {"allow_federation": True}}) as server:
        asyncio.run(taken())
