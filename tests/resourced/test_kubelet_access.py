"""Only clients whom the API server lets at nodes get an answer from the kubelet API, over real TLS."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiUnreachable, Object, ResourcePath
from redbox_resourced.kubelet import listener, server
from redbox_resourced.kubelet.authorization import Authorizer, KubeletClient, NodeAccess
from redbox_resourced.kubelet.handshake_limits import AT_ONCE, AT_ONCE_PER_ADDRESS
from redbox_resourced.kubelet.listener import KubeletListener, tls_context
from redbox_resourced.kubelet.server import KubeletApi
from redbox_resourced.kubelet.serving_certificate import ServingKeyPair, key_pem, make_key, self_signed
from redbox_resourced.partitions.slurmclusters import ClusterRegistry
from redbox_resourced.pods.reconciler import PodReconciler
from tests.kube.fakes import FakeApiServer
from tests.ports import free_port

NOW = datetime.now(UTC)
ADDRESS = "127.0.0.1"
API_SERVER = ("kube-apiserver-kubelet-client", "kubeadm:cluster-admins")


class Authority:
    """A CA, and the certificates that it gives."""

    def __init__(self, name: str) -> None:
        self._key = make_key()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()

    def issue(self, user: str, group: str, usage: x509.ObjectIdentifier) -> ServingKeyPair:
        key = make_key()
        names = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
        made = self._builder(x509.Name(names), key.public_key())
        made = made.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return ServingKeyPair(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM), key_pem(key))

    def _builder(self, subject: x509.Name, public: Any) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=1))
            .not_valid_after(NOW + timedelta(days=1))
        )


class ReviewingApiServer(FakeApiServer):
    """An API server with a client CA, which lets one group at nodes."""

    def __init__(self, client_ca: str) -> None:
        super().__init__()
        self.reviews: list[Object] = []
        client_cas = ResourcePath(kinds.CONFIG_MAP, "extension-apiserver-authentication", "kube-system")
        self.put(client_cas, data={"client-ca-file": client_ca})

    async def create(self, where: ResourcePath, body: Object, *, dry_run: bool = False) -> Object | None:
        del dry_run
        self._receive("create", where)
        self.reviews.append(body["spec"])
        attributes = body["spec"]["resourceAttributes"]
        allowed = API_SERVER[1] in body["spec"]["groups"] and attributes["subresource"] == "proxy"
        return {"status": {"allowed": allowed}}


class Served:
    """The kubelet API, listening."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority("kubernetes")
        self.api_server = ReviewingApiServer(self.authority.pem)
        self.port = free_port(ADDRESS)
        self.pair = self_signed(make_key(), ADDRESS, NOW)
        objects = self.api_server.client
        clusters = cast("ClusterRegistry", None)
        pods = PodReconciler(objects, clusters, cast("Any", None), ADDRESS)
        api = KubeletApi(pods, clusters, cast("Any", None), Authorizer(objects))
        self.runner = api.runner()
        self.listener = KubeletListener(objects, self.runner, ADDRESS, self.port)

    def context(self, client: ServingKeyPair | None) -> ssl.SSLContext:
        """As a client has it."""
        context = ssl.create_default_context(cadata=self.pair.certificate.decode())
        if client is not None:
            file = self.folder / "client.pem"
            file.write_bytes(client.key + client.certificate)
            context.load_cert_chain(file)
        return context

    async def get(self, client: ServingKeyPair | None, path: str = "/healthz") -> httpx.Response:
        context = self.context(client)
        async with httpx.AsyncClient(verify=context, trust_env=False) as http:
            return await http.get(f"https://{ADDRESS}:{self.port}{path}")

    @asynccontextmanager
    async def silent(self, count: int, addresses: int) -> AsyncIterator[None]:
        """So many connections, of so many addresses of this host, on which nothing is said."""
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as opened:
            for number in range(count):
                connection = opened.enter_context(socket.socket())
                connection.settimeout(0)
                connection.bind((f"127.0.1.{number % addresses + 1}", 0))
                await loop.sock_connect(connection, (ADDRESS, self.port))
                await asyncio.sleep(0)
            yield


def handshakes_under_way() -> int:
    """TLS buffers of clients that have not authenticated yet: these are what costs memory."""
    in_handshake = sslproto.SSLProtocolState.DO_HANDSHAKE
    return sum(vars(item)["_state"] is in_handshake for item in tls_protocols())


def connections() -> set[int]:
    """Those of this process that have not ended, of whichever test."""
    ended = sslproto.SSLProtocolState.UNWRAPPED
    return {id(item) for item in tls_protocols() if vars(item)["_state"] is not ended}


def tls_protocols() -> list[sslproto.SSLProtocol]:
    return [item for item in gc.get_objects() if isinstance(item, sslproto.SSLProtocol)]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(tmp_path)
    await served.runner.setup()
    running = asyncio.create_task(served.listener.run())
    served.listener.use(served.pair)
    await asyncio.wait_for(served.listener.serves.wait(), 60)
    yield served
    running.cancel()
    await asyncio.wait({running})
    await served.runner.cleanup()


async def test_the_api_server_is_answered(served: Served) -> None:
    answer = await served.get(served.authority.issue(*API_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH))
    assert (answer.status_code, answer.text) == (200, "ok")


async def test_without_a_certificate_there_is_no_answer(served: Served) -> None:
    with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
        await served.get(None)


async def test_a_certificate_of_another_ca_gets_no_answer(served: Served) -> None:
    stranger = Authority("kubernetes").issue(*API_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH)
    with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
        await served.get(stranger)


async def test_a_kubelets_serving_certificate_is_no_clients(served: Served) -> None:
    serving = served.authority.issue("system:node:k1", "system:nodes", ExtendedKeyUsageOID.SERVER_AUTH)
    with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
        await served.get(serving)


@pytest.mark.parametrize(("user", "group"), [("system:node:k1", "system:nodes"), ("bob", "developers")])
@pytest.mark.parametrize("path", ["/healthz", "/pods", "/containerLogs/a/b/c", "/exec/a/b/c", "/nowhere"])
async def test_who_is_known_and_may_not_learns_nothing(
    served: Served, user: str, group: str, path: str
) -> None:
    answer = await served.get(served.authority.issue(user, group, ExtendedKeyUsageOID.CLIENT_AUTH), path)
    assert answer.status_code == 403
    assert "Forbidden" in answer.text


async def test_where_nobody_can_say_nobody_is_answered(served: Served) -> None:
    served.api_server.fail(ApiUnreachable("away"), verb="create")
    answer = await served.get(served.authority.issue(*API_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH), "/pods")
    assert answer.status_code == 503


async def test_a_new_certificate_and_a_new_ca_are_served_without_a_break(served: Served) -> None:
    served.listener.use(served.pair)
    served.pair = self_signed(make_key(), ADDRESS, NOW)
    served.listener.use(served.pair)
    client = served.authority.issue(*API_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH)
    for _ in range(1200):
        try:
            assert (await served.get(client)).text == "ok"
        except httpx.ConnectError:
            await asyncio.sleep(0.05)
        else:
            return
    pytest.fail("the new certificate was not served")


@pytest.mark.parametrize(("addresses", "most"), [(1, AT_ONCE_PER_ADDRESS), (100, AT_ONCE)])
async def test_silent_connections_hold_little_and_keep_nobody_out(
    served: Served, addresses: int, most: int
) -> None:
    client = served.authority.issue(*API_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH)
    async with served.silent(1000, addresses):
        assert 0 < handshakes_under_way() <= most
        assert (await served.get(client)).text == "ok"
        assert handshakes_under_way() <= most


async def test_users_who_ask_nothing_hold_little_and_keep_nobody_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "FIRST_REQUEST_S", 60.0)
    context = served.context(served.authority.issue("bob", "developers", ExtendedKeyUsageOID.CLIENT_AUTH))
    silent = [await asyncio.open_connection(ADDRESS, served.port, ssl=context) for _ in range(AT_ONCE + 10)]
    for reader, _ in silent[:10]:
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
    client = served.authority.issue(*API_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH)
    assert (await served.get(client)).text == "ok"
    for _, writer in silent:
        writer.transport.abort()


@pytest.mark.parametrize("asked", [b"", b"GET /healthz HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: n\r\n\r\n"])
async def test_a_user_holds_no_connection(
    served: Served, asked: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks nothing, or half a request, or is refused and does not read it."""
    monkeypatch.setattr(listener, "FIRST_REQUEST_S", 0.1)
    monkeypatch.setattr(server, "REFUSED_S", 0.1)
    context = served.context(served.authority.issue("bob", "developers", ExtendedKeyUsageOID.CLIENT_AUTH))
    others = connections()
    with socket.create_connection((ADDRESS, served.port)) as plain:

        def ask() -> ssl.SSLSocket:
            connected = context.wrap_socket(plain, server_hostname=ADDRESS)
            with contextlib.suppress(OSError):  # it may be let go already
                connected.sendall(asked)
            return connected

        with await asyncio.to_thread(ask):
            async with asyncio.timeout(60):
                while connections() - others:  # noqa: ASYNC110 (nothing sets an event)
                    await asyncio.sleep(0.05)


async def test_many_clients_at_once_of_one_address_are_all_answered(served: Served) -> None:
    context = served.context(served.authority.issue(*API_SERVER, ExtendedKeyUsageOID.CLIENT_AUTH))

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(ADDRESS, served.port, ssl=context)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    answers = await asyncio.gather(*(ask() for _ in range(4 * AT_ONCE_PER_ADDRESS)))
    assert all(answer.endswith(b"ok") for answer in answers)


async def test_an_answer_of_the_api_server_is_asked_for_once_and_names_what_is_asked() -> None:
    api_server = ReviewingApiServer("")
    authorizer = Authorizer(api_server.client)
    client = KubeletClient(API_SERVER[0], (API_SERVER[1], "system:authenticated"))
    for _ in range(3):
        assert await authorizer.allows(client, NodeAccess("get", "log", "hpc1.debug"))
    asked = [review["resourceAttributes"] for review in api_server.reviews]
    assert [(item["subresource"], item["name"]) for item in asked] == [
        ("log", "hpc1.debug"),
        ("proxy", "hpc1.debug"),
    ]
    assert api_server.reviews[0]["groups"] == [API_SERVER[1], "system:authenticated"]


def test_our_own_certificate_names_our_address() -> None:
    pair = self_signed(make_key(), "10.1.2.3", NOW)
    assert pair.is_for("10.1.2.3")
    assert not pair.is_for("10.1.2.4")
    assert NOW < pair.renewal() < NOW + timedelta(days=90)


async def test_the_clients_ca_may_have_comments_in_any_script(served: Served) -> None:
    commented = tls_context(served.pair, f"# Universität Zürich\n{served.authority.pem}")
    assert len(commented.get_ca_certs()) == 1
    runner = web.AppRunner(web.Application())
    refusing = KubeletListener(ReviewingApiServer("ä").client, runner, ADDRESS, free_port(ADDRESS))
    refusing.use(served.pair)
    running = asyncio.create_task(refusing.run())
    async with asyncio.timeout(60):
        while "no certificate" not in refusing.problem:  # noqa: ASYNC110 (it sets no event)
            await asyncio.sleep(0.01)
    assert not refusing.serves.is_set()
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize("line", ["CONNECT x HTTP/1.1", "OPTIONS * HTTP/1.1", "CONNECT exec HTTP/1.1"])
async def test_a_target_that_is_no_path_is_refused_as_any_other(served: Served, line: str) -> None:
    stranger = served.context(served.authority.issue("eve", "tenants", ExtendedKeyUsageOID.CLIENT_AUTH))
    reader, writer = await asyncio.open_connection(ADDRESS, served.port, ssl=stranger)
    writer.write(f"{line}\r\nHost: x\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")
    writer.close()
