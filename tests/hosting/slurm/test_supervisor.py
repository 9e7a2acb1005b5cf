"""The operator reads which files are projected into slurmctld's pod, from the real endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redbox_hosting.slurm.errors import SlurmUnknown
from redbox_hosting.slurm.supervisor import read_status
from redbox_slurmpod.status_endpoint import StatusEndpoint
from redbox_slurmpod.supervision.supervisor import DaemonStatus
from redbox_slurmpod.tls.certificate import ReloadedCertificate
from redbox_slurmpod.tls.server import TlsServer, listen
from tests.hosting.slurm.scripted_server import response, serving
from tests.slurmpod.certificates import CLIENT, SERVER, Authority, client_context
from tests.slurmpod.kubelet import project

OPERATOR = "redbox-hosting"


@asynccontextmanager
async def supervisor(folder: Path) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    authority = Authority.make("cluster")
    tls = authority.issue(folder / "tls", "localhost", SERVER)
    status = StatusEndpoint(folder / "etc", lambda: DaemonStatus(keys={"slurm.jwks": "1f"}))
    server = TlsServer(ReloadedCertificate(tls, asks_clients=True), status.handle, client=OPERATOR)
    with listen("127.0.0.1", 0) as listening:
        task = asyncio.create_task(server.run(listening))
        port = listening.getsockname()[1]
        client = client_context(authority, authority.issue(folder / "operator", OPERATOR, CLIENT))
        yield f"https://127.0.0.1:{port}", client
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_the_newest_projected_files_are_read_by_their_sha256(tmp_path: Path) -> None:
    async with supervisor(tmp_path) as (endpoint, tls):
        for text in (b"KillWait=1", b"KillWait=2"):
            project(tmp_path / "etc", {"slurm.conf": text})
            found = await read_status(endpoint, tls, "localhost")
            assert found.files == {"slurm.conf": hashlib.sha256(text).hexdigest()}
            assert found.daemon.keys == {"slurm.jwks": "1f"}


@pytest.mark.parametrize("answer", [response({}, 404), response(b"[]"), response({"files": [1]}), b"no HTTP"])
async def test_no_status_is_unknown(answer: bytes) -> None:
    async with serving(lambda *_: answer) as server:
        with pytest.raises(SlurmUnknown, match="supervisor"):
            await read_status(server.endpoint, None, "localhost")


async def test_nobody_at_the_address_is_unknown() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(SlurmUnknown, match="does not answer"):
        await read_status(f"http://127.0.0.1:{port}", None, "localhost")
