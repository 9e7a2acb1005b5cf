"""TLS before slurmrestd: who may talk to it, how many at a time, how long, and renewal without a restart."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redbox_slurmpod.tls.certificate import ReloadedCertificate
from redbox_slurmpod.tls.front import TlsFront
from redbox_slurmpod.tls.server import ConnectionLimits, TlsServer, listen, names_of
from tests.slurmpod.certificates import CLIENT, SERVER, Authority, client_context
from tests.slurmpod.harness import until

OPERATOR = "redbox-hosting"


class Slurmrestd:
    """A server behind a Unix socket that answers each line with itself in capitals."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connections = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self.handle, str(self.path)):
            yield

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
        writer.close()
        self.connections -= 1


class Front:
    """A front with certificates of its own authority, and its operator's certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.make("cluster")
        self.tls = self.authority.issue(folder / "tls", "localhost", SERVER)
        self.operator = self.authority.issue(folder / "operator", OPERATOR, CLIENT)
        self.slurmrestd = Slurmrestd(folder / "restd.sock")
        self.port = 0

    @asynccontextmanager
    async def serving(
        self,
        *,
        asks_clients: bool = True,
        idle_s: float = 60,
        first_byte_s: float = 60,
        **options: object,
    ) -> AsyncIterator[None]:
        certificate = ReloadedCertificate(self.tls, asks_clients=asks_clients)
        front = TlsFront(self.slurmrestd.path, idle_s=idle_s, first_byte_s=first_byte_s)
        server = TlsServer(certificate, front.handle, **options)  # type: ignore[arg-type]
        with listen("127.0.0.1", 0) as listening:
            self.port = listening.getsockname()[1]
            task = asyncio.create_task(server.run(listening))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def connect(
        self, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = context or client_context(self.authority, self.operator)
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost")

    async def answers(self, context: ssl.SSLContext | None = None) -> bool:
        """Whether a line comes back; a refusal of TLS 1.3 shows only when it is read."""
        try:
            reader, writer = await self.connect(context)
            writer.write(b"ping\n")
            answer = await reader.readline()
            writer.close()
        except OSError:
            return False
        return answer == b"PING\n"


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    front = Front(tmp_path)
    async with front.slurmrestd.running():
        yield front


async def test_a_client_with_the_operators_certificate_talks_to_slurmrestd(front: Front) -> None:
    async with front.serving(client=OPERATOR):
        reader, writer = await front.connect()
        writer.write(b"x" * 50_000 + b"\n")
        assert await reader.readline() == b"X" * 50_000 + b"\n"
        writer.close()
        await until(lambda: front.slurmrestd.connections == 0)


async def test_clients_without_the_right_certificate_reach_nothing(front: Front, tmp_path: Path) -> None:
    other_name = front.authority.issue(tmp_path / "other", "somebody", CLIENT)
    servers_own = front.tls
    foreign = Authority.make("cluster").issue(tmp_path / "foreign", OPERATOR, CLIENT)
    async with front.serving(client=OPERATOR):
        for certificate in (None, other_name, servers_own, foreign):
            assert not await front.answers(client_context(front.authority, certificate))
        assert await front.answers()


async def test_users_need_no_certificate_where_none_is_asked(front: Front) -> None:
    async with front.serving(asks_clients=False):
        assert await front.answers(client_context(front.authority))


async def test_both_authorities_are_trusted_while_one_is_replaced_and_the_old_one_no_longer(
    front: Front, tmp_path: Path
) -> None:
    new = Authority.make("cluster 2")
    new_operator = new.issue(tmp_path / "new-operator", OPERATOR, CLIENT)
    async with front.serving(client=OPERATOR):
        assert await front.answers()
        assert not await front.answers(client_context(front.authority, new_operator))
        (front.tls / "ca.crt").write_bytes(front.authority.pem + new.pem)
        assert await front.answers()
        assert await front.answers(client_context(front.authority, new_operator))
        new.issue(front.tls, "localhost", SERVER)
        assert await front.answers(client_context(new, new_operator))
        assert not await front.answers(client_context(new, front.operator))


async def test_files_that_do_not_load_leave_the_former_certificate_in_use(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    async with front.serving(client=OPERATOR):
        assert await front.answers()
        good = (front.tls / "tls.crt").read_bytes()
        (front.tls / "tls.crt").write_bytes(b"half a certifi")
        assert await front.answers()
        assert await front.answers()
        (front.tls / "tls.crt").write_bytes(good)
        assert await front.answers()
    assert sum("cannot be used" in message for message in caplog.messages) == 1


async def test_an_open_connection_outlives_a_renewal(front: Front) -> None:
    async with front.serving(client=OPERATOR):
        reader, writer = await front.connect()
        front.authority.issue(front.tls, "localhost", SERVER)
        assert await front.answers()
        writer.write(b"still\n")
        assert await reader.readline() == b"STILL\n"
        writer.close()


async def test_connections_above_the_limits_are_closed_and_others_go_on(front: Front) -> None:
    limits = ConnectionLimits(total=3, per_address=2)
    async with front.serving(client=OPERATOR, limits=limits):
        first, second = await front.connect(), await front.connect()
        for _, writer in (first, second):
            writer.write(b"here\n")
            await writer.drain()
        assert await first[0].readline() == await second[0].readline() == b"HERE\n"
        assert not await front.answers()
        first[1].close()
        await until(lambda: front.slurmrestd.connections == 1)
        async with asyncio.timeout(60):
            while not await front.answers():  # noqa: ASYNC110 - its slot is free a little later
                await asyncio.sleep(0.01)


async def test_who_shakes_no_hands_is_closed(front: Front) -> None:
    limits = ConnectionLimits(handshake_s=0.1)
    async with front.serving(client=OPERATOR, limits=limits):
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        assert await reader.read() == b""
        writer.close()
        assert await front.answers()


async def test_a_connection_on_which_nothing_moves_is_closed(front: Front) -> None:
    async with front.serving(client=OPERATOR, idle_s=0.2):
        reader, writer = await front.connect()
        writer.write(b"ping\n")
        assert await reader.read() == b"PING\n"
        writer.close()
        await until(lambda: front.slurmrestd.connections == 0)


@pytest.mark.parametrize("asks_clients", [True, False])
async def test_who_shakes_no_hands_takes_no_place_of_a_client(front: Front, *, asks_clients: bool) -> None:
    limits = ConnectionLimits(total=2, per_address=2, handshakes=3, handshake_s=60)
    async with front.serving(asks_clients=asks_clients, limits=limits):
        silent = [await asyncio.open_connection("127.0.0.1", front.port) for _ in range(7)]
        assert await front.answers()
        for reader, _ in silent[:5]:  # the client was the eighth
            assert await reader.read() == b""
        assert not silent[-1][0].at_eof()
        for _, writer in silent:
            writer.close()


async def test_a_client_that_asks_nothing_gives_its_place_back_soon(front: Front) -> None:
    limits = ConnectionLimits(total=1, per_address=1)
    async with front.serving(client=OPERATOR, first_byte_s=0.2, limits=limits):
        reader, writer = await front.connect()
        assert await reader.read() == b""
        writer.close()
        assert front.slurmrestd.connections == 0
        async with asyncio.timeout(60):
            while not await front.answers():  # noqa: ASYNC110 - its slot is free a little later
                await asyncio.sleep(0.01)


async def test_a_slurmrestd_that_is_away_is_a_closed_connection(tmp_path: Path) -> None:
    front = Front(tmp_path)
    async with front.serving(client=OPERATOR):
        assert not await front.answers()
        async with front.slurmrestd.running():
            assert await front.answers()


def test_names_of_a_certificate_are_its_dns_names_and_its_common_name() -> None:
    certificate = {
        "subject": ((("organizationName", "red-box"),), (("commonName", "operator"),)),
        "subjectAltName": (("DNS", "a.example"), ("IP Address", "10.0.0.1")),
    }
    assert names_of(certificate) == {"operator", "a.example"}
    assert names_of({}) == set()
