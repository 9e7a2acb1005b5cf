"""What goes over the line to a red-box, and what is made of one that behaves in strange ways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from redbox_api.client import LogQuery, RedboxClient
from redbox_api.connections import ClientConnections
from redbox_api.errors import Unreachable
from redbox_api.limits.answer_limits import AnswerLimits
from redbox_api.limits.time_share import Charge, TimeShare
from redbox_api.requests.sender import Deadlines

NOTHING = b'{"items":[]}'
BEGINS = ("redbox-generation: g", "redbox-offset: 0")
"""As an answer about a log has it."""


def head(status: str, *fields: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode()


def answer(body: bytes = NOTHING, status: str = "200 OK", *fields: str) -> bytes:
    return head(status, f"content-length: {len(body)}", *fields) + body


@dataclass
class Server:
    """Answers each request with the next of `answers` and then as the last; None ends the connection.

    So does `ends`, after each answer.
    """

    answers: list[bytes | None]
    ends: bool = False
    endpoint: str = ""
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await self._head(reader):
                self.requests.append(head)
                given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if given is None:
                    return
                writer.write(given)
                await writer.drain()
                if self.ends:
                    return
        except ConnectionError:
            pass
        finally:
            self.left.set()
            writer.close()

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> str:
        try:
            return (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return ""


@asynccontextmanager
async def serving(*answers: bytes | None, ends: bool = False) -> AsyncIterator[Server]:
    server = Server(list(answers), ends)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.endpoint = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server


async def secret() -> str:
    return "secret"


async def test_connections_are_kept_alive_so_that_a_dead_host_is_noticed() -> None:
    async with serving(answer()) as server, RedboxClient(server.endpoint) as client:
        await client.usage()
        connector = client._connections.session().connector
        assert connector is not None
        ((protocol, _),) = (kept for (kept,) in connector._conns.values())
        assert protocol.transport is not None
        opened = protocol.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15


async def test_a_token_goes_nowhere_else() -> None:
    async with serving(answer()) as other:
        away = answer(b"", "307 Temporary Redirect", f"location: {other.endpoint}/v1/usage")
        async with serving(away) as server, RedboxClient(server.endpoint, token=secret) as client:
            with pytest.raises(Unreachable, match="HTTP 307: the response did not come from red-box"):
                await client.usage()
    assert "Bearer secret" in server.requests[0]
    assert other.requests == []


async def test_an_endpoints_own_name_and_password_do_not_take_the_tokens_place() -> None:
    async with serving(answer()) as server:
        endpoint = server.endpoint.replace("//", "//me:mine@")
        async with RedboxClient(endpoint, token=secret) as client:
            await client.usage()
    assert "Bearer secret" in server.requests[0]


async def test_what_a_server_wants_remembered_is_not() -> None:
    async with serving(answer(NOTHING, "200 OK", "set-cookie: a=b")) as server:
        by_name = server.endpoint.replace("127.0.0.1", "localhost")  # jars keep nothing for addresses
        async with RedboxClient(by_name) as client:
            await client.usage()
            await client.usage()
    assert ["cookie" in one.lower() for one in server.requests] == [False, False]


async def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with serving(answer()) as server, RedboxClient(server.endpoint) as client:
        await client.usage()
    assert server.requests


async def test_those_who_speak_for_others_share_the_connections() -> None:
    async with serving(answer()) as server, RedboxClient(server.endpoint) as client:
        for other in (client.speaking_for(secret), client, client.speaking_for(secret)):
            await other.usage()
    assert ["Bearer secret" in one for one in server.requests] == [True, False, True]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("..", "/v1/jobs/.."),
        ("a/b?c=d#e", "/v1/jobs/a%2Fb%3Fc%3Dd%23e"),
        ("%41 ä", "/v1/jobs/%2541%20%C3%A4"),
        ("a\r\nb: c", "/v1/jobs/a%0D%0Ab%3A%20c"),
    ],
)
async def test_a_key_arrives_as_it_is(key: str, path: str) -> None:
    async with serving(answer(b"", "404 Not Found")) as server, RedboxClient(server.endpoint) as client:
        with pytest.raises(Unreachable):
            await client.get_job(key)
    assert server.requests[0].startswith(f"GET {path}?attempt=1 HTTP/1.1\r\n")


async def test_a_query_arrives_as_it_is() -> None:
    async with serving(answer(b"", "404 Not Found")) as server, RedboxClient(server.endpoint) as client:
        with pytest.raises(Unreachable):
            await anext(client.list_jobs(phase=["a", "b"], name="x&y=z+1 ;%"))
    assert server.requests[0].startswith("GET /v1/jobs?phase=a&phase=b&name=x%26y%3Dz%2B1+%3B%25 HTTP/1.1")


async def test_a_document_of_a_watch_may_be_long_and_hold_other_line_breaks() -> None:
    message = "\u2028\x0b" + "x" * 3_000_000
    line = f'{{"type":"bookmark","revision":"1","message":"{message[0]}{message[2:]}"}}\n'.encode()
    async with serving(answer(line + b"\n" + line)) as server, RedboxClient(server.endpoint) as client:
        events = [event async for event in client.watch_jobs()]
    assert [len(event.message or "") for event in events] == [3_000_001] * 2


async def test_a_log_that_looks_compressed_is_passed_on_as_it_is() -> None:
    sent = answer(b"no gzip", "200 OK", "content-encoding: gzip", *BEGINS)
    async with (
        serving(sent) as server,
        RedboxClient(server.endpoint) as client,
        client.read_log("k1", LogQuery()) as log,
    ):
        assert b"".join([piece async for piece in log.pieces]) == b"no gzip"
    assert "accept-encoding: identity" in server.requests[0].lower()


async def test_what_may_be_sent_twice_is_sent_again_where_a_kept_connection_is_gone() -> None:
    async with serving(answer(), None, answer()) as server, RedboxClient(server.endpoint) as client:
        await client.usage()
        await client.usage()
    assert len(server.requests) == 3


async def test_an_act_is_never_sent_twice() -> None:
    async with serving(answer(), None, answer()) as server, RedboxClient(server.endpoint) as client:
        await client.usage()
        with pytest.raises(Unreachable, match=r"^/v1/jobs/k1/requeue: Server disconnected"):
            await client.act_on_job("k1", "requeue")
    assert len(server.requests) == 2


async def test_who_leaves_in_the_middle_ends_the_connection() -> None:
    chunks = b"5\r\nhello\r\n"
    endless = head("200 OK", "transfer-encoding: chunked", *BEGINS) + chunks
    async with serving(endless) as server, RedboxClient(server.endpoint) as client:
        async with client.read_log("k1", LogQuery()) as log:
            assert await anext(log.pieces) == b"hello"
        async with asyncio.timeout(60):
            await server.left.wait()


BEGUN = head("200 OK", "content-length: 9", *BEGINS) + b"{"


@pytest.mark.parametrize("begun", [b"", BEGUN], ids=["nothing", "a beginning"])
async def test_an_answer_that_does_not_come_whole_is_left_at_the_deadline(begun: bytes) -> None:
    async with (
        serving(begun) as server,
        RedboxClient(server.endpoint, deadlines=Deadlines(answer=0.1)) as client,
    ):
        with pytest.raises(Unreachable, match=r"^/v1/usage: no answer within 0\.1 s$"):
            await client.usage()


@pytest.mark.parametrize("begun", [b"", BEGUN], ids=["nothing", "a beginning"])
async def test_a_watch_that_is_silent_is_left(begun: bytes) -> None:
    async with (
        serving(begun) as server,
        RedboxClient(server.endpoint, deadlines=Deadlines(quiet=0.1)) as client,
    ):
        with pytest.raises(Unreachable, match=r"^/v1/jobs: it was silent for too long$"):
            await anext(client.watch_jobs())


async def test_a_log_that_breaks_off_is_no_whole_one() -> None:
    why = r"^/v1/jobs/k1/logs/stdout: Response payload is not completed"
    async with serving(BEGUN, ends=True) as server, RedboxClient(server.endpoint) as client:
        with pytest.raises(Unreachable, match=why):
            [piece async for piece in pieces_of(client)]
        async with aclosing(pieces_of(client)) as pieces:
            assert await anext(pieces) == b"{"


async def pieces_of(client: RedboxClient) -> AsyncGenerator[bytes, None]:
    async with client.read_log("k1", LogQuery()) as log:
        async for piece in log.pieces:
            yield piece


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://127.0.0.1:1",
        "https://probe.invalid",
        "https://127.0.0.1:99999",
        "https://[x",
        "nonsense",
        "",
    ],
)
async def test_why_nobody_is_reached_is_said_in_the_same_words_each_time(endpoint: str) -> None:
    said = set()
    for _ in range(2):
        async with RedboxClient(endpoint) as client:
            with pytest.raises(Unreachable) as error:
                await client.usage()
            said.add(str(error.value))
    assert len(said) == 1
    assert "ssl:" not in said.pop()  # which is how aiohttp words it


async def test_a_client_that_was_closed_reaches_nobody(tmp_path: Path) -> None:
    async with RedboxClient("http://redbox", socket=str(tmp_path / "s")) as client:
        other = client.speaking_for(secret)
    with pytest.raises(Unreachable, match="closed"):
        await other.usage()


PAGE = b"<html>Sign in</html>\n"


@pytest.mark.parametrize("sent", [answer(PAGE), answer(b"{}\n"), answer(b"[]\n")])
async def test_a_page_with_200_is_no_answer_to_anything(sent: bytes) -> None:
    async with serving(sent) as server, RedboxClient(server.endpoint) as client:
        requests: list[Callable[[], Awaitable[object]]] = [
            lambda: client.cancel_job("k1"),
            lambda: client.get_job("k1"),
            lambda: anext(client.list_jobs()),
            lambda: anext(client.watch_jobs()),
            lambda: anext(client.watch_partitions()),
            lambda: anext(pieces_of(client)),
        ]
        for request in requests:
            with pytest.raises(Unreachable, match="did not come from red-box"):
                await request()


@pytest.mark.parametrize(
    "fields",
    [(), BEGINS[:1], BEGINS[1:], (BEGINS[0], "redbox-offset: first"), (BEGINS[0], "redbox-offset: -1")],
)
@pytest.mark.parametrize("status", ["200 OK", "204 No Content"])
async def test_a_log_says_where_it_begins(status: str, fields: tuple[str, ...]) -> None:
    body = b"a line of something\n" if status == "200 OK" else b""
    async with serving(answer(body, status, *fields)) as server, RedboxClient(server.endpoint) as client:
        with pytest.raises(Unreachable, match="did not come from red-box"):
            [piece async for piece in pieces_of(client)]


async def test_a_log_of_no_file_has_an_empty_generation() -> None:
    sent = answer(b"", "204 No Content", "redbox-generation: ", "redbox-offset: 0")
    async with (
        serving(sent) as server,
        RedboxClient(server.endpoint) as client,
        client.read_log("k1", LogQuery()) as log,
    ):
        assert log.nothing_more


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
async def test_an_answer_that_has_no_end_is_not_kept(status: str) -> None:
    limits = AnswerLimits(longest=100_000)
    async with (
        serving(answer(b"x" * 1_000_000, status)) as server,
        RedboxClient(server.endpoint, limits=limits) as client,
    ):
        for asked in (client.usage(), anext(client.watch_jobs())):
            with pytest.raises(Unreachable, match="an answer of more than"):
                await asked


async def test_what_is_said_in_a_streams_place_has_a_deadline() -> None:
    begun = head("404 Not Found", "content-length: 100") + b"{"
    deadlines = Deadlines(answer=0.1, quiet=60)
    async with serving(begun) as server, RedboxClient(server.endpoint, deadlines=deadlines) as client:
        with pytest.raises(Unreachable, match=r"^/v1/jobs: no answer within 0\.1 s$"):
            await anext(client.watch_jobs())


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".example", ".localhost"])
async def test_a_name_that_no_resolver_takes_is_unreachable(host: str) -> None:
    """Users of a namespace write such addresses, and a feed retries only what it is to retry."""
    async with RedboxClient(f"https://{host}:6443", token=secret) as client:
        with pytest.raises(Unreachable, match="is not a valid address"):
            await client.whoami()


class CountedShare(TimeShare):
    """How often something was charged to it."""

    charges = 0

    def charged(self) -> Charge:
        self.charges += 1
        return super().charged()


async def test_the_parsing_of_an_answer_is_charged_to_its_red_boxs_share() -> None:
    """By a private attribute of aiohttp's connector: a release without it must not go unnoticed."""
    async with serving(answer()) as server:
        share = CountedShare()
        connections = ClientConnections(path=None, ca_bundle=None, share=share)
        async with connections.session().get(f"{server.endpoint}/v1/jobs") as response:
            assert await response.read() == NOTHING
        await connections.close()
        assert share.charges > 0
