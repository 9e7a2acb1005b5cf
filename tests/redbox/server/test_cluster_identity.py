"""A red-box that Slurm has never answered responds with 503, and continues once Slurm answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from redbox.core.workload_manager import WorkloadManager, WorkloadManagerError
from redbox.jobs.store.journal import Journal
from redbox.server import cluster_identity as naming
from redbox.server.cluster_identity import FACT, cluster_name
from redbox.settings import RedboxSettings

AWAY, OK, UNAVAILABLE = "Unable to contact slurm controller", 200, 503


class Slurm:
    """Away, until it is there; or silent for ever."""

    def __init__(self, *, there: bool, silent: bool = False) -> None:
        self.there = there
        self.silent = silent

    async def cluster(self) -> Any:
        if self.silent:
            await asyncio.Event().wait()
        if not self.there:
            raise WorkloadManagerError(AWAY)
        return SimpleNamespace(name="hpc1")


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path)
    yield journal
    journal.close()


def settings(folder: Path) -> RedboxSettings:
    return RedboxSettings.model_validate(
        {"name": "hpc1", "listen": {"port": 0, "unix_socket": f"{folder}/socket"}}
    )


def name_of(folder: Path, slurm: Slurm, journal: Journal) -> asyncio.Task[str]:
    return asyncio.create_task(cluster_name(settings(folder), cast("WorkloadManager", slurm), journal))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "RETRY_S", 0.05)
    monkeypatch.setattr(naming, "FIRST_WAIT_S", 0.2)


async def test_it_answers_that_it_is_too_early_and_goes_on_by_itself(
    tmp_path: Path, journal: Journal
) -> None:
    slurm = Slurm(there=False)
    naming_it = name_of(tmp_path, slurm, journal)
    transport = httpx.AsyncHTTPTransport(uds=f"{tmp_path}/socket", retries=8)
    async with (
        asyncio.timeout(60),
        httpx.AsyncClient(transport=transport, base_url="http://redbox") as caller,
    ):
        ready = await caller.get("/readyz")
        put = await caller.put("/v1/jobs/key", json={"batch": "#!/bin/sh\n" + "#" * 500_000})
        assert (await caller.get("/healthz")).status_code == OK
        for answer in (ready, put):
            assert answer.status_code == UNAVAILABLE
            assert answer.json()["retry"]
            assert "Slurm has never answered it" in answer.json()["detail"]
            assert answer.headers["retry-after"]
        slurm.there = True
        assert await naming_it == "hpc1"


async def test_nothing_listens_where_slurm_answers_or_has_answered_before(
    tmp_path: Path, journal: Journal
) -> None:
    assert await name_of(tmp_path, Slurm(there=True), journal) == "hpc1"
    journal.close()
    again = Journal(tmp_path)
    assert again.contents is not None
    assert again.contents.facts[FACT] == "hpc1"
    assert await name_of(tmp_path, Slurm(there=False), again) == "hpc1"
    async with asyncio.timeout(60):
        assert await name_of(tmp_path, Slurm(there=True, silent=True), again) == "hpc1"
    again.close()
    assert not (tmp_path / "socket").exists()


async def test_a_service_manager_does_not_take_the_wait_for_a_start_that_failed(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"{tmp_path}/notify")
        systemd.settimeout(0)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{tmp_path}/notify")
        slurm = Slurm(there=False)
        naming_it = name_of(tmp_path, slurm, journal)
        async with asyncio.timeout(60):
            assert await asyncio.get_running_loop().sock_recv(systemd, 64) == b"READY=1"
            slurm.there = True
            await naming_it
