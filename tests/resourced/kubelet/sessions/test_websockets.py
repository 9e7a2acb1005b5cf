"""exec, attach and portForward over WebSockets, as API servers hand on those of Python, Java and browsers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType

from redbox_resourced.kubelet.spdy.limits import SpdyLimits
from redbox_resourced.kubelet.turns import Turn
from redbox_resourced.kubelet.websocket.session import LEAST_COST
from tests.resourced.kubelet.sessions.harness import (
    ADDRESS,
    SUCCESS,
    RedboxSide,
    Stand,
    exit_code,
    kubelet_api,
)

V4, V5, TEXT = "v4.channel.k8s.io", "v5.channel.k8s.io", "v4.base64.channel.k8s.io"
COMMAND = [("command", "cat"), ("input", "1"), ("output", "1"), ("error", "1")]
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)


@asynccontextmanager
async def connected(
    stand: Stand,
    path: str = "/exec/alice/train/main",
    query: Sequence[tuple[str, str]] = COMMAND,
    protocols: Sequence[str] = (V4,),
    **options: Any,
) -> AsyncIterator[ClientWebSocketResponse]:
    url = f"http://{ADDRESS}:{stand.port}{path}"
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as http,
        http.ws_connect(url, params=query, protocols=protocols, **options) as websocket,
    ):
        yield websocket


async def rest(websocket: ClientWebSocketResponse) -> dict[int, bytes]:
    """All that comes until its end, by channel."""
    received: dict[int, bytes] = {}
    async for message in websocket:
        received[message.data[0]] = received.get(message.data[0], b"") + message.data[1:]
    return received


async def refused(
    stand: Stand, path: str, query: Sequence[tuple[str, str]], **options: str
) -> Mapping[str, Any]:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers |= {"Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode()} | options
    url = f"http://{ADDRESS}:{stand.port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, params=query, headers=headers) as answer:
        status: Mapping[str, Any] = await answer.json()
    assert (answer.status, status["kind"]) == (400, "Status")
    return status


async def test_a_command_gets_its_input_and_gives_its_output_and_exit_code() -> None:
    async def three(side: RedboxSide) -> None:
        assert await side.next() == b"\0some"
        await side.send(1, b"out")
        await side.send(2, b"err")
        await side.end(exit_code(3))

    async with kubelet_api() as stand, connected(stand, protocols=["v9", V4, V5]) as websocket:
        stand.redbox.script = three
        assert websocket.protocol == V4
        assert await websocket.receive_bytes() == bytes([STDOUT])
        await websocket.send_bytes(b"")
        await websocket.send_bytes(bytes([77]) + b"no such channel")
        await websocket.send_bytes(bytes([STDIN]) + b"some")
        received = await rest(websocket)
        assert (received[STDOUT], received[STDERR]) == (b"out", b"err")
        assert json.loads(received[ERROR]) == exit_code(3)
        assert websocket.close_code == 1000


async def test_v5_ends_the_input_and_v4_cannot() -> None:
    async with kubelet_api() as stand, connected(stand, protocols=[V5]) as websocket:
        await websocket.send_bytes(bytes([STDIN]) + b"all")
        await websocket.send_bytes(bytes([255, STDIN]))
        received = await rest(websocket)
        assert (received[STDOUT], json.loads(received[ERROR])) == (b"all", SUCCESS)


async def test_a_client_that_names_no_protocol_is_served() -> None:
    async with kubelet_api() as stand, connected(stand, protocols=[]) as websocket:
        assert websocket.protocol is None
        await websocket.send_bytes(bytes([STDIN]) + b"x")
        assert [await websocket.receive_bytes() for _ in range(2)] == [
            bytes([STDOUT]),
            bytes([STDOUT]) + b"x",
        ]


@pytest.mark.parametrize(("code", "written"), [(0, None), (3, b"NonZeroExitCode")])
async def test_protocols_before_v4_say_only_why_a_command_failed(code: int, written: bytes | None) -> None:
    async def ending(side: RedboxSide) -> None:
        await side.end(exit_code(code) if code else SUCCESS)

    async with kubelet_api() as stand, connected(stand, protocols=["channel.k8s.io"]) as websocket:
        stand.redbox.script = ending
        assert websocket.protocol == "channel.k8s.io"
        assert (await rest(websocket)).get(ERROR) == written


async def test_browsers_read_and_write_base64() -> None:
    async with kubelet_api() as stand, connected(stand, protocols=[TEXT]) as websocket:
        await websocket.send_str("0" + base64.b64encode(b"\xff\0").decode())
        assert await websocket.receive_str() == "1"
        assert await websocket.receive_str() == "1" + base64.b64encode(b"\xff\0").decode()
        await websocket.send_str("0no base64!")
        assert (await websocket.receive()).type in {WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING}


async def test_a_terminal_has_its_size() -> None:
    async def one_size(side: RedboxSide) -> None:
        await side.end(SUCCESS)

    query = [("command", "top"), ("tty", "1"), ("output", "1"), ("input", "1")]
    async with kubelet_api() as stand, connected(stand, query=query) as websocket:
        stand.redbox.script = one_size
        await websocket.send_bytes(bytes([RESIZE]) + b'{"Width": 81, "Height": 24}')
        await rest(websocket)
        assert stand.redbox.sides[0].command["size"] == {"columns": 81, "rows": 24}


async def test_a_client_that_leaves_ends_its_command() -> None:
    async with kubelet_api() as stand:
        async with connected(stand) as websocket:
            await websocket.receive_bytes()
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_the_end_of_the_pod_ends_its_sessions_with_a_status() -> None:
    async with kubelet_api() as stand, connected(stand) as websocket:
        await websocket.receive_bytes()
        pod = next(iter(stand.reconciler.informer.pods.values()))
        for on_delete in stand.reconciler.on_delete:
            on_delete(pod)
        status = json.loads((await rest(websocket))[ERROR])
        assert "the pod was deleted" in status["message"]


async def test_input_that_nobody_reads_is_not_read_from_the_client() -> None:
    """Else a tenant's own client would fill the memory that all tenants share."""
    go_on = asyncio.Event()
    total = 0

    async def slow(side: RedboxSide) -> None:
        nonlocal total
        await go_on.wait()
        while total < size:
            total += len(await side.next()) - 1
        await side.end(SUCCESS)

    size, piece = 24 << 20, bytes([STDIN]) + bytes(1 << 16)
    async with kubelet_api() as stand, connected(stand) as websocket:
        stand.redbox.script = slow
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < size:
                await websocket.send_bytes(piece)
                sent += len(piece) - 1

        sending = asyncio.create_task(send())
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
        assert sent < size
        go_on.set()
        received = await rest(websocket)
        await sending
        assert (total, json.loads(received[ERROR])) == (size, SUCCESS)


async def test_each_ping_is_answered_in_the_turn_of_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read may bring tens of thousands: answered outside of it they would stop all other tenants."""
    pings, charged = 200, 0
    copied = Turn.copied

    async def charge(turn: Turn, size: int) -> None:
        nonlocal charged
        charged += size
        await copied(turn, size)

    monkeypatch.setattr(Turn, "copied", charge)
    async with kubelet_api() as stand, connected(stand, autoping=False) as websocket:
        await websocket.receive_bytes()
        for _ in range(pings):
            await websocket.ping(b"x")
        answers = [await websocket.receive() for _ in range(pings)]
        assert {(answer.type, answer.data) for answer in answers} == {(WSMsgType.PONG, b"x")}
        await websocket.send_bytes(bytes([STDIN]) + b"x")
        assert await websocket.receive_bytes() == bytes([STDOUT]) + b"x"
        assert charged >= pings * LEAST_COST


async def test_a_message_that_is_too_long_ends_the_connection_with_its_code() -> None:
    async with kubelet_api() as stand, connected(stand) as websocket:
        await websocket.send_bytes(bytes([STDIN]) + bytes(1 << 19))
        await rest(websocket)
        assert websocket.close_code == 1009
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_a_silent_connection_ends_after_some_hours_and_one_with_output_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "redbox_resourced.kubelet.websocket.session.SpdyLimits", lambda: SpdyLimits(idle_s=0.05)
    )
    async with kubelet_api() as stand, connected(stand) as websocket:
        await rest(websocket)
        await asyncio.wait_for(stand.redbox.closed.wait(), 60)


async def test_ports_are_forwarded_in_pairs_of_channels_that_begin_with_their_port() -> None:
    query = [("port", "8888,9999")]
    async with kubelet_api() as stand, connected(stand, "/portForward/alice/train", query) as websocket:
        first = [await websocket.receive_bytes() for _ in range(4)]
        assert first == [
            bytes([number]) + port.to_bytes(2, "little")
            for number, port in enumerate([8888, 8888, 9999, 9999])
        ]
        await websocket.send_bytes(b"\2two")
        assert await websocket.receive_bytes() == b"\2two"
        await websocket.send_bytes(b"\0one")
        assert await websocket.receive_bytes() == b"\0one"
        assert [side.request for side in stand.redbox.connections] == [{"port": 8888}, {"port": 9999}]


async def test_a_server_that_ends_its_connection_ends_the_forward() -> None:
    """The client cannot learn of it in another way."""

    async def hello(side: RedboxSide) -> None:
        await side.send(1, b"hello")
        await side.send(255, b"\1")
        while await side.next() not in {b"\0", b"\xff\0"}:
            pass
        await side.end(SUCCESS)

    query = [("port", "80")]
    async with kubelet_api() as stand:
        stand.redbox.script = hello
        async with connected(stand, "/portForward/alice/train", query) as websocket:
            assert (await rest(websocket))[0] == (80).to_bytes(2, "little") + b"hello"


async def test_a_port_without_a_server_is_a_sentence_on_the_error_channel() -> None:
    async def refuse(side: RedboxSide) -> None:
        await side.end({"status": "Failure", "message": "nobody listens on port 80"})

    async with kubelet_api() as stand:
        stand.redbox.script = refuse
        async with connected(stand, "/portForward/alice/train", [("port", "80")]) as websocket:
            assert b"nobody listens" in (await rest(websocket))[1]


@pytest.mark.parametrize(
    ("path", "query", "headers", "sentence"),
    [
        ("/portForward/alice/train", [], {}, 'query parameter "port" is required'),
        ("/portForward/alice/train", [("port", "80,x")], {}, "'x' is no port"),
        ("/portForward/alice/train", [("port", "0")], {}, "'0' is no port"),
        ("/portForward/alice/train", [("port", ",".join(["80"] * 65))], {}, "64 at most"),
        ("/exec/alice/train/main", [("command", "true")], {}, "at least 1 of stdin"),
        ("/exec/alice/train/main", [("output", "1")], {}, "a command is required"),
        ("/exec/alice/train/main", COMMAND, {"Sec-WebSocket-Protocol": "v2, v3"}, "names none of v4"),
        ("/exec/alice/train/main", COMMAND, {"Sec-WebSocket-Key": "x"}, "no handshake"),
    ],
)
async def test_what_is_wrong_is_said_before_the_101(
    path: str, query: Sequence[tuple[str, str]], headers: dict[str, str], sentence: str
) -> None:
    async with kubelet_api() as stand:
        status = await refused(stand, path, query, **headers)
        assert sentence in status["message"]
        assert not stand.redbox.sides


@pytest.mark.parametrize("path", ["/exec/alice/train/main", "/attach/alice/train/main"])
async def test_a_session_by_get_needs_the_right_to_create(path: str) -> None:
    async with kubelet_api() as stand:
        stand.api_server.allowed = lambda attributes: attributes["verb"] == "get"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            async with connected(stand, path):
                pass
        assert refusal.value.status == 403
