"""The kubelet API's sessions over real connections: a client that speaks SPDY, and a red-box with one job."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch
from urllib.parse import urlencode

from aiohttp import WSMsgType, web
from aiohttp.http_exceptions import BadHttpMessage

from redbox_api.client import RedboxClient
from redbox_api.models import Job
from redbox_resourced.kubelet.authorization import Authorizer
from redbox_resourced.kubelet.server import KubeletApi
from redbox_resourced.kubelet.serving_certificate import make_key, self_signed
from redbox_resourced.partitions.slurmclusters import ClusterConnection, ClusterRegistry
from redbox_resourced.pods.pod_view import BoundPod
from redbox_resourced.pods.reconciler import PodReconciler
from redbox_resourced.pods.submission import PodSubmitter
from redbox_resourced.translation.pod import translate
from redbox_shared.wire import EXEC_PROTOCOL, GENERATION_HEADER, OFFSET_HEADER, PORTS_PROTOCOL
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster
from tests.resourced.kubelet.spdy.harness import Peer
from tests.resourced.pods.factories import pod_job, running_pod

ADDRESS = "127.0.0.1"
SUCCESS = {"metadata": {}, "status": "Success"}
PEERCERT = {"subject": ((("commonName", "kube-apiserver"),),)}
"""These connections have no TLS, which has tests of its own."""
OPEN = 6
CLIENTS_FAULT = (BadHttpMessage, ConnectionError)
"""aiohttp logs these as errors of ours: it answers the one with 400, and the other's client has gone."""
Script = Callable[["RedboxSide"], Any]


def exit_code(code: int) -> dict[str, Any]:
    cause = {"reason": "ExitCode", "message": str(code)}
    details = {"causes": [cause]}
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode", "details": details}


@dataclass
class RedboxSide:
    """One WebSocket, as red-box has it."""

    websocket: web.WebSocketResponse
    path: str
    query: Mapping[str, str]
    token: str
    command: dict[str, Any] = field(default_factory=dict)
    received: list[bytes] = field(default_factory=list)

    async def send(self, channel: int, content: bytes) -> None:
        await self.websocket.send_bytes(bytes([channel]) + content)

    async def end(self, status: Mapping[str, Any]) -> None:
        await self.send(3, json.dumps(status).encode())

    async def next(self) -> bytes:
        """The next message; none at the end."""
        message = await self.websocket.receive()
        content = message.data if message.type is WSMsgType.BINARY else b""
        self.received.append(content)
        return cast("bytes", content)


@dataclass
class ConnectionSide(RedboxSide):
    """One connection of a forward, whose messages have its number after the channel."""

    number: bytes = b""
    request: dict[str, Any] = field(default_factory=dict)
    arrived: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)

    async def send(self, channel: int, content: bytes) -> None:
        with suppress(ConnectionError):
            await super().send(channel, self.number + content)

    async def next(self) -> bytes:
        self.received.append(await self.arrived.get())
        return self.received[-1]


class FakeRedbox:
    """A red-box with one job; a script decides what each of its sessions does."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.script: Script = echo
        self.sides: list[RedboxSide] = []
        self.refusal: web.Response | None = None
        self.closed = asyncio.Event()
        self.forwards = 0

    @property
    def connections(self) -> list[ConnectionSide]:
        return [side for side in self.sides if isinstance(side, ConnectionSide)]

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/jobs/{key}", self._job)
        app.router.add_get("/v1/jobs/{key}/exec", self._exec)
        app.router.add_get("/v1/jobs/{key}/ports", self._ports)
        app.router.add_get("/v1/jobs/{key}/logs/{stream}", self._log)
        return app

    async def _job(self, request: web.Request) -> web.Response:
        job = self.job.model_copy(update={"key": request.match_info["key"]})
        return web.Response(text=job.model_dump_json(by_alias=True), content_type="application/json")

    async def _log(self, _: web.Request) -> web.Response:
        """There is nothing, and nothing will come."""
        return web.Response(status=204, headers={GENERATION_HEADER: "g", OFFSET_HEADER: "0"})

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        return self.refusal or await self._serve(request, EXEC_PROTOCOL)

    async def _ports(self, request: web.Request) -> web.StreamResponse:
        if self.refusal:
            return self.refusal
        websocket = web.WebSocketResponse(protocols=(PORTS_PROTOCOL,))
        await websocket.prepare(request)
        self.forwards += 1
        token = request.headers.get("Authorization", "")
        sides: dict[bytes, ConnectionSide] = {}
        async with asyncio.TaskGroup() as group:
            async for message in websocket:
                channel, number, content = message.data[0], message.data[1:5], message.data[5:]
                if channel == OPEN:
                    side = ConnectionSide(websocket, request.path, request.query, token, number=number)
                    side.request = json.loads(content)
                    sides[number] = side
                    self.sides.append(side)
                    group.create_task(self._play(side))
                elif (channel, content) == (255, b"\1"):
                    self.closed.set()
                elif number in sides:
                    sides[number].arrived.put_nowait(bytes([channel]) + content)
            for side in sides.values():
                side.arrived.put_nowait(b"")
        self.closed.set()
        return websocket

    async def _play(self, side: RedboxSide) -> None:
        await self.script(side)

    async def _serve(self, request: web.Request, protocol: str) -> web.StreamResponse:
        websocket = web.WebSocketResponse(protocols=(protocol,))
        await websocket.prepare(request)
        side = RedboxSide(websocket, request.path, request.query, request.headers.get("Authorization", ""))
        self.sides.append(side)
        try:
            if protocol == EXEC_PROTOCOL:
                first = await websocket.receive()
                if first.type is not WSMsgType.TEXT:  # the client had no streams for a command
                    return websocket
                side.command = json.loads(first.data)
            await self.script(side)
        finally:
            await websocket.close()
            self.closed.set()
        return websocket


async def echo(side: RedboxSide) -> None:
    """cat: what comes goes back, until the input ends."""
    while message := await side.next():
        if message[0] == 0:
            await side.send(1, message[1:])
        if message == b"\xff\0":
            await side.send(255, b"\1")
            await side.end(SUCCESS)
            return


@dataclass
class Client:
    """An API server's connection to the kubelet API, after its request."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: dict[str, str]
    body: bytes = b""
    peer: Peer = field(default_factory=Peer)
    streams: dict[str, int] = field(default_factory=dict)

    def open(self, **headers: str) -> int:
        stream, frame = self.peer.open(headers)
        self.writer.write(frame)
        self.streams[headers.get("streamType", "")] = stream
        return stream

    def send(self, frame: bytes) -> None:
        self.writer.write(frame)

    async def until(self, reached: Callable[[Peer], object]) -> None:
        """Read until this is so; a connection that ends first fails."""
        async with asyncio.timeout(60):
            while not reached(self.peer):
                piece = await self.reader.read(65536)
                assert piece, f"the connection ended after {self.peer.received}"
                self.peer.feed(piece)

    async def rest(self) -> Peer:
        """Until our side has sent its last frame."""
        await self.until(lambda peer: peer.of("goaway"))
        return self.peer

    def text(self, stream: str) -> bytes:
        return self.peer.data_of(self.streams[stream])

    @property
    def final_status(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.text("error")))

    @property
    def refusal(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.body))


class Stand:
    """A kubelet API that serves one pod, and its red-box."""

    def __init__(self, redbox: FakeRedbox, api_server: ReviewingApiServer) -> None:
        self.redbox = redbox
        self.api_server = api_server
        self.reconciler: PodReconciler
        self.runner: web.AppRunner
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self._clients: list[Client] = []

    def serve(self, pod: BoundPod) -> None:
        self.reconciler.informer.pods[pod.place] = pod

    async def request(
        self,
        path: str,
        query: list[tuple[str, str]] | None = None,
        *,
        method: str = "POST",
        protocols: tuple[str, ...] = ("v5.channel.k8s.io", "v4.channel.k8s.io"),
        upgrade: str = "SPDY/3.1",
    ) -> Client:
        target = f"{path}?{urlencode(query or [])}"
        lines = [f"{method} {target} HTTP/1.1", "Host: node", "Content-Length: 0", "Connection: Upgrade"]
        lines += [f"Upgrade: {upgrade}"] + [f"X-Stream-Protocol-Version: {name}" for name in protocols]
        reader, writer = await asyncio.open_connection(ADDRESS, self.port, ssl=self.tls)
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        client = Client(reader, writer, int(head[0].split()[1]), headers)
        if client.status != 101:
            client.body = await reader.readexactly(int(headers.get("content-length", "0")))
        self._clients.append(client)
        return client

    async def exec(self, *command: str, wanted: str = "input output error", **more: str) -> Client:
        """With its streams opened, as kubectl does."""
        query = [("command", word) for word in command] + [(name, "1") for name in wanted.split()]
        client = await self.request("/exec/alice/train/main", [*query, *more.items()])
        if client.status == 101:
            open_streams(client, wanted)
        return client

    async def forward(self) -> Client:
        return await self.request("/portForward/alice/train", protocols=("portforward.k8s.io",))

    async def stop(self) -> None:
        """As resourced does at its end."""
        await self.runner.cleanup()

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


def open_streams(client: Client, wanted: str) -> None:
    names = {"input": "stdin", "output": "stdout", "error": "stderr", "tty": "resize"}
    for name in ("error", *(names[word] for word in wanted.split() if word in names)):
        client.open(streamType=name)


@asynccontextmanager
async def kubelet_api(*, tls: bool = False, **pod: Any) -> AsyncIterator[Stand]:
    """Of a pod that runs, whose job runs; every request comes from the API server.

    An error that no code of the kubelet API has handled fails the test.
    """
    unhandled = Unhandled()
    stand = Stand(FakeRedbox(pod_job()), ReviewingApiServer())
    redbox_runner = web.AppRunner(stand.redbox.application())
    endpoint = await _listen(redbox_runner)
    async with RedboxClient(f"http://{ADDRESS}:{endpoint}", token=_token_of_resourced) as resourced:
        connection = ClusterConnection(slurm_cluster(), resourced, cast("Any", None))
        clusters = cast("ClusterRegistry", SimpleNamespace(of_node=lambda _: connection))
        objects = stand.api_server.client
        submitter = PodSubmitter(objects, translate)
        stand.reconciler = PodReconciler(objects, clusters, submitter, ADDRESS)
        api = KubeletApi(stand.reconciler, clusters, submitter, Authorizer(objects))
        stand.serve(running_pod("Running", **pod))
        stand.runner = api.runner()
        server_tls, stand.tls = tls_contexts() if tls else (None, None)
        stand.port = await _listen(stand.runner, server_tls)
        try:
            with patch.object(web.BaseRequest, "get_extra_info", lambda *_: PEERCERT):
                yield stand
        finally:
            stand.close()
            await stand.stop()
            await redbox_runner.cleanup()
            logging.getLogger("aiohttp.server").removeHandler(unhandled)
    assert unhandled.errors == []


class Unhandled(logging.Handler):
    """What aiohttp's server logs of its handlers."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []
        logging.getLogger("aiohttp.server").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], CLIENTS_FAULT):
            return
        self.errors.append(f"{record.getMessage()}: {record.exc_info}")


async def _listen(runner: web.AppRunner, tls: ssl.SSLContext | None = None) -> int:
    await runner.setup()
    site = web.TCPSite(runner, ADDRESS, 0, ssl_context=tls)
    await site.start()
    return int(runner.addresses[0][1])


def tls_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the server, with a certificate of its own, and of a client."""
    serving = self_signed(make_key(), ADDRESS, datetime.now(UTC))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with NamedTemporaryFile() as file:
        file.write(serving.key + b"\n" + serving.certificate)
        file.flush()
        server.load_cert_chain(file.name)
    return server, ssl.create_default_context(cadata=serving.certificate.decode())


async def _token_of_resourced() -> str:
    return "resourced"


class ReviewingApiServer(FakeApiServer):
    """Allows what `allowed` allows, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.reviews: list[Mapping[str, Any]] = []
        self.allowed: Callable[[Mapping[str, Any]], bool] = lambda _: True

    async def create(self, where: Any, body: Any, *, dry_run: bool = False) -> Any:
        del where, dry_run
        self.reviews.append(body["spec"])
        return {"status": {"allowed": self.allowed(body["spec"]["resourceAttributes"])}}
