"""Responses byte by byte, as a server may send them."""

from __future__ import annotations

import io
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from redbox_companion.connection.http_connection import HttpResponse, MalformedResponse
from redbox_companion.redbox_client import AnswerStream, RedboxUnreachable

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextmanager
def response(*sent: bytes, closed: bool = True) -> Iterator[HttpResponse]:
    """Of a server that sends this and then closes the connection, or leaves it open."""
    server, ours = socket.socketpair()
    with server, ours:
        ours.settimeout(60)
        server.sendall(b"".join(sent))
        if closed:
            server.close()
        yield HttpResponse(ours)


def test_headers_are_found_by_any_case_and_repeated_ones_are_joined() -> None:
    with response(OK, b"X-One: a\r\nx-one:b \r\nContent-Length: 0\r\n\r\n") as found:
        assert (found.status, found.header("X-ONE"), found.header("other")) == (200, "a, b", "")
        assert found.read(10) == b""


def test_a_body_of_a_known_length_ends_there() -> None:
    with response(OK, b"Content-Length: 5\r\n\r\nhello", b"more", closed=False) as found:
        assert found.read(100) == b"hello"
        assert found.read_some(100) == b""


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    with response(OK, b"\r\n", b"hello") as found:
        assert found.read(100) == b"hello"


def test_chunks_are_read_piece_by_piece() -> None:
    with response(
        CHUNKED, b"5\r\nhello\r\n", b"A;name=value\r\n, world of\r\n", b"0\r\nTrailer: x\r\n\r\n"
    ) as found:
        assert found.read_some(3) == b"hel"
        assert found.read_some(100) == b"lo"
        assert found.read(100) == b", world of"
        assert found.read_some(100) == b""


def test_a_chunk_is_there_before_its_end_is() -> None:
    with response(CHUNKED, b"5\r\nhello", closed=False) as found:
        assert found.read_some(100) == b"hello"


@pytest.mark.parametrize(
    "cut", [b"5\r\nhel", b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n", b"5", b"5\r\nhello, world\r\n0\r\n\r\n"]
)
def test_half_a_chunked_body_is_an_error_after_the_bytes_that_came(cut: bytes) -> None:
    with response(CHUNKED, cut) as found, pytest.raises(MalformedResponse):
        found.read(100)


def test_half_a_body_of_a_known_length_is_an_error() -> None:
    with response(OK, b"Content-Length: 9\r\n\r\nhello") as found:
        assert found.read_some(100) == b"hello"
        with pytest.raises(MalformedResponse):
            found.read_some(100)


@pytest.mark.parametrize("size", [b"", b"-5", b"0x5", b"5_0", b"hello", b"+5"])
def test_the_size_of_a_chunk_is_a_hexadecimal_number(size: bytes) -> None:
    with response(CHUNKED, size, b"\r\nhello\r\n") as found, pytest.raises(MalformedResponse):
        found.read_some(100)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200!OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 020 OK\r\n\r\n",
        b"HTTP/1.1 0200 OK\r\n\r\n",
        OK + b"X: one\rContent-Length: 0\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        OK,
        OK + b"no colon\r\n\r\n",
        OK + b": no name\r\n\r\n",
        OK + b"Content Length: 5\r\n\r\n",
        OK + b" folded: header\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"X: " + b"x" * 70000 + b"\r\n\r\n",
        OK + b"X: x\r\n" * 101 + b"\r\n",
    ],
)
def test_whatever_is_not_http_is_an_error(sent: bytes) -> None:
    with pytest.raises(MalformedResponse), response(sent):
        pass


def test_an_interim_response_is_skipped() -> None:
    with response(
        b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", closed=False
    ) as found:
        assert (found.status, found.header("X"), found.read_some(1)) == (204, "y", b"")


def test_bytes_of_another_protocol_come_with_the_response_that_switches_to_it() -> None:
    with response(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"\x82\x00", closed=False) as found:
        assert (found.status, found.peek()) == (101, b"\x82\x00")


def test_a_server_that_only_begins_to_answer_is_left() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    with pytest.raises(MalformedResponse, match="interim"), response(interim * 1000, closed=False):
        pass


def test_small_chunks_take_no_more_memory_than_their_bytes() -> None:
    """A companion may have 64 MiB, and a response 8 MiB."""
    sent = CHUNKED + b"2\r\nxy\r\n" * 50_000 + b"0\r\n\r\n"

    class Connection:
        def makefile(self, _: str) -> io.BufferedReader:
            return io.BufferedReader(io.BytesIO(sent))

    found = HttpResponse(cast("socket.socket", Connection()))
    tracemalloc.start()
    try:
        body = found.read(1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert body == b"xy" * 50_000
    assert peak < 5 * len(body)


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"phase":' * 50_000, b"\xff\xfe", b"9" * 5000, b"[]"])
def test_a_body_that_is_no_job_is_a_strangers(body: bytes) -> None:
    server, ours = socket.socketpair()
    with server, ours:
        ours.settimeout(60)

        def send() -> None:
            server.sendall(OK + b"\r\n" + body)
            server.close()

        sending = threading.Thread(target=send)
        sending.start()
        with pytest.raises(RedboxUnreachable, match="did not come from red-box"):
            AnswerStream("https://redbox", HttpResponse(ours)).whole()
        sending.join()
