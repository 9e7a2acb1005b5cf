"""Slurm is read when the supervisor in slurmctld's pod tells of a change, from the real endpoint."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from redbox_hosting.controllers import slurm_snapshots
from redbox_hosting.controllers.slurm_connections import SlurmConnections
from redbox_hosting.controllers.slurm_snapshots import SlurmSnapshots
from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_hosting.slurm.supervisor_feed import SupervisorAddress, next_tag
from tests.hosting.controllers.fake_slurm import FakeSlurm
from tests.hosting.slurm.scripted_server import response, serving
from tests.hosting.slurm.test_supervisor import supervisor
from tests.slurmpod.harness import until
from tests.slurmpod.kubelet import project

PLACE = ("hpc", "slurm")


async def test_a_change_in_slurmctlds_pod_has_slurm_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_snapshots, "IDLE_S", 3600.0)
    slurm, connections = FakeSlurm(), SlurmConnections()
    snapshots = SlurmSnapshots(connections)
    connections.connect(PLACE, slurm.client)
    project(tmp_path / "etc", {})
    async with supervisor(tmp_path) as (endpoint, tls), asyncio.TaskGroup() as group:
        connections.supervise(PLACE, SupervisorAddress(endpoint, tls, "localhost"))
        running = group.create_task(snapshots.run())
        snapshots.look_at(PLACE, "w", awaits=False)
        await until(lambda: slurm.read_count == 1)
        numbers = count()

        def is_read_again() -> bool:
            project(tmp_path / "etc", {"slurm.conf": str(next(numbers)).encode()})
            return slurm.read_count > 1

        await until(is_read_again)
        running.cancel()


@pytest.mark.parametrize("answer", [response({}, 404), b"no HTTP", response(b"x", length=9)])
async def test_no_answer_is_unknown(answer: bytes) -> None:
    async with serving(lambda *_: answer) as server:
        with pytest.raises(SlurmUnknown, match="supervisor"):
            await next_tag(SupervisorAddress(server.endpoint, None, "localhost"), '"x"')
