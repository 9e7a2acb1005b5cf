"""The user at the other end of the Unix socket, through a real uvicorn."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redbox.callers import peers
from redbox.callers.identities import Peer
from redbox.callers.peers import MAX_PIPELINED, STATE_KEY, PeerAwareProtocol, peer_in
from tests.redbox.callers.server import serving

ASK = """
import os, socket, sys
path, uid, header = sys.argv[1:]
if uid != "-":
    os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(path)
s.sendall(("GET / HTTP/1.1\\r\\nHost: x\\r\\n" + header + "Connection: close\\r\\n\\r\\n").encode())
answer = b""
while part := s.recv(65536): answer += part
print(answer.partition(b"\\r\\n\\r\\n")[2].decode())
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users reach; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(prefix="redbox-peers-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


async def show_peer(scope: Any, _receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    peer = peer_in(scope)
    shown = json.dumps(None if peer is None else [peer.uid, peer.gid, peer.pid > 0]).encode()
    length = [(b"content-length", str(len(shown)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": shown})


async def ask(path: Path, uid: str = "-", header: str = "") -> Any:
    command = [sys.executable, "-c", ASK, str(path), uid, header]
    ended = await asyncio.to_thread(
        subprocess.run, command, check=True, capture_output=True, text=True, timeout=60
    )
    return json.loads(ended.stdout)


async def answers(path: Path, uid: str) -> list[Any]:
    async with serving(show_peer, uds=str(path)):
        path.chmod(0o666)
        return [
            await ask(path),
            await ask(path, uid),
            await ask(path, uid, f"{STATE_KEY}: Peer(uid=0, gid=0, pid=1)\r\n"),
        ]


def test_the_kernel_says_who_is_at_the_socket(open_folder: Path) -> None:
    other = "2001" if os.geteuid() == 0 else "-"
    expected = 2001 if os.geteuid() == 0 else os.getuid()
    mine, theirs, lying = asyncio.run(answers(open_folder / "redbox.sock", other))
    assert mine == [os.getuid(), os.getgid(), True]
    assert theirs[0] == expected
    assert lying == theirs


def test_a_user_that_is_unknown_in_this_user_namespace_is_nobody(open_folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    overflow = Path("/proc/sys/kernel/overflowuid").read_text().strip()
    assert asyncio.run(answers(open_folder / "redbox.sock", overflow))[1] is None


async def test_a_caller_over_tcp_has_no_peer() -> None:
    async with serving(show_peer, host="127.0.0.1", port=0) as server:
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.endswith(b"null")


def test_a_scope_without_state_has_no_peer() -> None:
    assert peer_in({"type": "http"}) is None
    assert peer_in({"type": "http", "state": {STATE_KEY: "Peer"}}) is None
    assert peer_in({"type": "http", "state": {STATE_KEY: Peer(1, 1, 1)}}) == Peer(1, 1, 1)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX-Slow: "])
async def test_who_connects_and_does_not_finish_asking_is_let_go(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(peers, "HEAD_TIMEOUT_S", 0.05)
    path = open_folder / "redbox.sock"
    async with serving(show_peer, uds=str(path)), asyncio.timeout(60):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()


async def test_an_answer_may_take_longer_than_asking_may(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "HEAD_TIMEOUT_S", 0.05)
    path = open_folder / "redbox.sock"
    waited = asyncio.Event()
    async with serving(show_peer, uds=str(path)) as server, asyncio.timeout(60):

        async def answer_late(scope: Any, receive: Any, send: Any) -> None:
            asyncio.get_running_loop().call_later(0.2, waited.set)
            await waited.wait()
            await show_peer(scope, receive, send)

        server.config.loaded_app = answer_late
        with socket.socket(socket.AF_UNIX) as asked:  # before the server looks at the connection
            asked.connect(str(path))
            asked.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            reader, writer = await asyncio.open_unix_connection(sock=asked.dup())
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


class Watched(PeerAwareProtocol):
    """Remembers how many requests waited at most."""

    most = 0

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        Watched.most = max(Watched.most, len(self.pipeline))


async def test_who_sends_thousands_of_requests_at_once_is_let_go(open_folder: Path) -> None:
    path = open_folder / "redbox.sock"
    async with serving(show_peer, uds=str(path), http=Watched), asyncio.timeout(60):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 2000)
        answer = await reader.read()
        writer.close()
    assert b"HTTP/1.1 400" in answer
    assert 0 < Watched.most <= MAX_PIPELINED


async def test_a_few_requests_sent_at_once_are_answered_one_by_one(open_folder: Path) -> None:
    path = open_folder / "redbox.sock"
    async with serving(show_peer, uds=str(path)), asyncio.timeout(60):
        reader, writer = await asyncio.open_unix_connection(path)
        asks = b"GET / HTTP/1.1\r\nHost: x\r\n"
        writer.write((asks + b"\r\n") * MAX_PIPELINED + asks + b"Connection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.count(b"HTTP/1.1 200") == MAX_PIPELINED + 1
