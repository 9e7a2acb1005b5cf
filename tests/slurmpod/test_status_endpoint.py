"""What the operator reads in slurmctld's pod, and how soon."""

import asyncio
import contextlib
import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from redbox_slurmpod.poke import poke
from redbox_slurmpod.status_endpoint import StatusEndpoint, parse_request, receive_pokes, wait_of
from redbox_slurmpod.supervision.supervisor import DaemonStatus
from redbox_slurmpod.tls.certificate import ReloadedCertificate
from redbox_slurmpod.tls.server import TlsServer, listen
from tests.slurmpod.certificates import CLIENT, SERVER, Authority, client_context
from tests.slurmpod.harness import until
from tests.slurmpod.kubelet import project

OPERATOR = "redbox-hosting"


class Endpoint:
    """An endpoint over a folder of projected files, and its operator."""

    def __init__(self, folder: Path) -> None:
        self.daemon = DaemonStatus(pid=17, since=1.5, ready=True, starts=1, keys={"slurm.jwks": "1f"})
        self.files = folder / "etc"
        project(self.files, {"slurm.conf": b"ClusterName=lab"})
        self.node_state = folder / "node_state"
        self.status = StatusEndpoint(self.files, lambda: self.daemon, self.node_state)
        self.poke_socket = folder / "run" / "poke.sock"
        authority = Authority.make("cluster")
        self.tls = authority.issue(folder / "tls", "localhost", SERVER)
        self.context = client_context(authority, authority.issue(folder / "operator", OPERATOR, CLIENT))
        self.without_certificate = client_context(authority)
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = TlsServer(
            ReloadedCertificate(self.tls, asks_clients=True), self.status.handle, client=OPERATOR
        )
        with (
            receive_pokes(self.poke_socket, self.status.poked) as receiver,
            listen("127.0.0.1", 0) as listening,
        ):
            self.port = listening.getsockname()[1]
            task = asyncio.create_task(server.run(listening))
            try:
                yield
            finally:
                asyncio.get_running_loop().remove_reader(receiver)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def ask(
        self, *headers: str, line: str = "GET /status HTTP/1.1", context: ssl.SSLContext | None = None
    ) -> bytes:
        context = context or self.context
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
        )
        writer.write("\r\n".join([line, *headers, "", ""]).encode())
        try:
            return await reader.read()
        finally:
            writer.close()

    async def read(self, *headers: str) -> tuple[dict[str, Any], str]:
        """The status and its tag."""
        head, _, body = (await self.ask(*headers)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
        assert int(fields["Content-Length"]) == len(body)
        return json.loads(body), fields["ETag"]

    def wait(self, tag: str) -> asyncio.Task[tuple[dict[str, Any], str]]:
        return asyncio.create_task(self.read(f"If-None-Match: {tag}", "Prefer: wait=60"))


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(tmp_path)
    async with endpoint.serving():
        yield endpoint


async def test_the_status_has_the_projected_files_and_the_daemon(endpoint: Endpoint) -> None:
    status, _ = await endpoint.read()
    assert status == {
        "files": {"slurm.conf": hashlib.sha256(b"ClusterName=lab").hexdigest()},
        "daemon": {"pid": 17, "since": 1.5, "ready": True, "starts": 1, "keys": {"slurm.jwks": "1f"}},
        "pokes": 0,
        "nodes": 0,
    }


async def test_a_poke_ends_the_wait_of_the_operator(endpoint: Endpoint) -> None:
    _, tag = await endpoint.read()
    waiting = endpoint.wait(tag)
    poke(endpoint.poke_socket)
    status, new_tag = await waiting
    assert status["pokes"] == 1
    assert new_tag != tag


async def test_new_files_and_a_new_slurmctld_end_the_wait_too(endpoint: Endpoint) -> None:
    _, tag = await endpoint.read()
    waiting = endpoint.wait(tag)
    project(endpoint.files, {"slurm.conf": b"ClusterName=new", "gres.conf": b""})
    status, tag = await waiting
    assert set(status["files"]) == {"slurm.conf", "gres.conf"}
    waiting = endpoint.wait(tag)
    endpoint.daemon = DaemonStatus(pid=18, since=2.5, ready=True, starts=1)
    status, _ = await waiting
    assert status["daemon"]["pid"] == 18


async def test_a_saved_state_of_the_nodes_ends_the_wait_too(endpoint: Endpoint) -> None:
    _, tag = await endpoint.read()
    waiting = endpoint.wait(tag)
    endpoint.node_state.write_text("drained")
    status, tag = await waiting
    assert status["nodes"] == endpoint.node_state.stat().st_mtime_ns
    endpoint.node_state.unlink()
    assert (await endpoint.read()) == (status, tag)


async def test_an_unchanged_status_is_not_sent_again(endpoint: Endpoint) -> None:
    _, tag = await endpoint.read()
    assert (await endpoint.ask(f"If-None-Match: {tag}")).startswith(b"HTTP/1.1 304 Not Modified\r\n")


async def test_a_client_without_the_operators_certificate_reads_nothing(endpoint: Endpoint) -> None:
    with contextlib.suppress(OSError):
        assert await endpoint.ask(context=endpoint.without_certificate) == b""


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET / HTTP/1.1", b"404"),
        ("POST /status HTTP/1.1", b"404"),
        ("GET /status HTTP/1.0", b"400"),
        ("\N{SNOWMAN}", b"400"),
        ("GET /status HTTP/1.1\r\nX: " + "x" * 9000, b"400"),
    ],
)
async def test_other_requests_are_refused(endpoint: Endpoint, line: str, status: bytes) -> None:
    assert (await endpoint.ask(line=line)).split()[1] == status
    assert await endpoint.read()


async def test_files_that_cannot_be_read_are_none(endpoint: Endpoint) -> None:
    (endpoint.files / "..data").unlink()
    (endpoint.files / "..data").symlink_to("absent")
    status, _ = await endpoint.read()
    assert status["files"] == {}


async def test_a_poke_without_an_endpoint_is_no_failure_of_slurmctlds_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poke(tmp_path / "absent.sock")
    assert "was not poked" in caplog.text


async def count_one_poke(path: Path) -> int:
    counted: list[int] = []
    with receive_pokes(path, lambda: counted.append(1)) as receiver:
        poke(path)
        await until(lambda: counted)
        asyncio.get_running_loop().remove_reader(receiver)
    return len(counted)


async def test_the_socket_of_a_container_that_has_ended_is_replaced(tmp_path: Path) -> None:
    assert [await count_one_poke(tmp_path / "poke.sock") for _ in range(2)] == [1, 1]


def test_a_request_is_its_line_and_its_headers() -> None:
    assert parse_request(b"GET /status HTTP/1.1\r\nPrefer: wait=5\r\nHost:x\r\n\r\n") == {
        "method": "GET",
        "path": "/status",
        "prefer": "wait=5",
        "host": "x",
    }
    assert parse_request(b"GET\r\n\r\n") is None


@pytest.mark.parametrize(
    ("preference", "seconds"),
    [("", 0), ("wait=30", 30), ("respond-async, wait=9", 9), ("wait=9999", 60), ("wait=x", 0)],
)
def test_the_wait_is_bounded(preference: str, seconds: int) -> None:
    assert wait_of(preference) == seconds
