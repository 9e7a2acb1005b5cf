"""The same bytes, read by us and by `http.client`."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from redbox_companion.connection.http_connection import HttpResponse, MalformedResponse

PRINTABLE = [chr(code) for code in range(0x20, 0x7F)]
UNFRAMED = frozenset({204, 304})


class Sent(NamedTuple):
    """A response as a server sends it, and what is in it."""

    raw: bytes
    status: int
    body: bytes


class Answer(NamedTuple):
    status: int
    header: str
    body: bytes


@st.composite
def responses(draw: st.DrawFn) -> Sent:
    status = draw(st.sampled_from([200, 200, 204, 304, 401, 503]))
    body = b"" if status in UNFRAMED else draw(st.binary(max_size=60))
    head = [f"HTTP/1.1 {status} {draw(st.sampled_from(['OK', '', 'Not so good']))}"]
    interim = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\nX-Of: this one\r\n\r\n"]))
    text = st.text(st.sampled_from(PRINTABLE), max_size=8)
    head.append("X-Plain:" + draw(st.sampled_from(["", " ", "\t"])) + draw(text))
    framing = draw(st.sampled_from(["length", "chunks", "close"])) if status not in UNFRAMED else "none"
    if framing == "length":
        head.append(draw(st.sampled_from(["Content-Length", "content-length"])) + f": {len(body)}")
    if framing == "chunks":
        head.append(draw(st.sampled_from(["Transfer-Encoding: chunked", "transfer-encoding:Chunked"])))
    sent = _chunks(draw, body) if framing == "chunks" else body
    return Sent(interim + "\r\n".join([*head, "", ""]).encode() + sent, status, body)


def _chunks(draw: st.DrawFn, body: bytes) -> bytes:
    sent = b""
    while body:
        size = draw(st.integers(1, len(body)))
        extension = draw(st.sampled_from([b"", b";a=b", b" "]))
        sent += b"%x%s\r\n%s\r\n" % (size, extension, body[:size])
        body = body[size:]
    return sent + b"0\r\n" + draw(st.sampled_from([b"", b"X-Trailer: x\r\n"])) + b"\r\n"


def by_us(connection: socket.socket, taken: list[bytes], size: int = 7) -> Answer:
    response = HttpResponse(connection)
    while piece := response.read_some(size):
        taken.append(piece)
    return Answer(response.status, response.header("x-plain"), b"".join(taken))


def by_http_client(connection: socket.socket) -> Answer:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return Answer(response.status, response.getheader("x-plain", "").strip(" \t"), response.read())


def read(raw: bytes, reader: Callable[[socket.socket], Answer]) -> Answer:
    """The answer of a server that sends this and closes the connection."""
    server, ours = socket.socketpair()
    with server, ours:
        ours.settimeout(60)
        server.sendall(raw)
        server.close()
        return reader(ours)


@given(responses(), st.integers(1, 80))
def test_a_response_is_read_alike(sent: Sent, size: int) -> None:
    ours = read(sent.raw, lambda connection: by_us(connection, [], size))
    assert ours == read(sent.raw, by_http_client)
    assert (ours.status, ours.body) == (sent.status, sent.body)


@given(responses(), st.data())
def test_half_a_response_gives_the_bytes_that_came_and_never_an_end_too_early(
    sent: Sent, data: st.DataObject
) -> None:
    """What the relay has copied is where it asks for more: a byte too many or too few is lost or doubled."""
    taken: list[bytes] = []
    cut = sent.raw[: data.draw(st.integers(0, len(sent.raw) - 1))]
    try:
        read(cut, lambda connection: by_us(connection, taken))
    except MalformedResponse:
        pass
    else:
        framed = any(mark in sent.raw.lower() for mark in (b"content-length", b"transfer-encoding"))
        assert not framed, "half a body was taken for a whole one"
    copied = b"".join(taken)
    assert sent.body.startswith(copied)
    assert cut.endswith(copied) or b"chunked" in sent.raw.lower()


@settings(max_examples=200)
@given(responses(), st.data())
def test_a_damaged_response_is_refused_or_read_alike(sent: Sent, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(sent.raw) - 1))
    damaged = sent.raw[:place] + data.draw(st.sampled_from(PRINTABLE)).encode() + sent.raw[place + 1 :]
    try:
        ours = read(damaged, lambda connection: by_us(connection, []))
    except (MalformedResponse, ValueError):
        return
    theirs = read(damaged, by_http_client)
    assume(theirs.status == 101 or theirs.status >= 200)  # of interim responses it skips only 100
    assume(b"hunked \n" not in damaged)  # it takes the blank for a part of the value
    assert ours == theirs


@pytest.mark.parametrize("space", ["\x0b", "\x85", "\xa0"])
def test_only_spaces_and_tabs_surround_a_value(space: str) -> None:
    raw = f"HTTP/1.1 200 OK\r\nX-Plain:\t x{space} \r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    assert read(raw, lambda connection: by_us(connection, [])).header == f"x{space}"


def test_a_blank_behind_chunked_is_no_part_of_it() -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked \r\n\r\n1\r\na\r\n0\r\n\r\n"
    assert read(raw, lambda connection: by_us(connection, [])).body == b"a"


@pytest.mark.parametrize("size", [b"2", b"4"])
def test_a_chunk_that_is_not_as_long_as_it_says_is_refused(size: bytes) -> None:
    """By one byte more, which is the CR at its end, a bare LF would be left."""
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nabc\r\n0\r\n\r\n"
    with pytest.raises(MalformedResponse, match="not as long as it says"):
        read(raw, lambda connection: by_us(connection, []))
