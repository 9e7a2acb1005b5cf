"""Window sizes, as a client writes them to its resize stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_api.sessions.parts import TerminalSize
from redbox_resourced.kubelet.sessions.client_streams import LARGEST_SIZE, ClientStreams, read_sizes
from redbox_resourced.kubelet.spdy.session import SpdySession


class Pieces:
    """What has arrived on the stream, piece by piece."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


def streams_with(*pieces: bytes) -> ClientStreams:
    streams: Any = {"resize": Pieces(*pieces)}
    return ClientStreams(cast("SpdySession", None), streams)


def size(columns: int) -> bytes:
    return json.dumps({"Width": columns, "Height": 24}).encode()


async def test_of_many_sizes_the_newest_counts_wherever_they_are_cut() -> None:
    many = b"\n".join(size(columns) for columns in range(1, 5000))
    streams = streams_with(many + size(80)[:7], size(80)[7:])
    assert await streams.next_size() == TerminalSize(columns=4999, rows=24)
    assert await streams.next_size() == TerminalSize(columns=80, rows=24)
    assert await streams.next_size() is None


@pytest.mark.parametrize("nonsense", [b"1 " * 16_000, b"[" * 32_000, "\U0001f600".encode() * 8_000])
async def test_what_is_no_size_is_dropped_and_costs_a_pause_a_piece(
    nonsense: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    streams = streams_with(nonsense, nonsense, b" " + size(80))
    assert await streams.next_size() == TerminalSize(columns=80, rows=24)
    assert len(pauses) == 2


@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from(
                [
                    size(80),
                    size(80)[:9],
                    size(80)[9:],
                    b'{"Width":0,"Height":0}',
                    b'{"Width":true,"Height":true}',
                    b'{"Width":1e9,"Height":NaN}',
                    b'{"Width":' + b"9" * 5000 + b"}",
                    b"[" * 3000,
                    b'{"' * 3000,
                    b'"\\ud800"',
                    b"{",
                    b"\xff\x00 ",
                ]
            ),
        ),
        max_size=12,
    )
)
def test_whatever_is_written_as_sizes_is_a_size_or_dropped(pieces: list[bytes]) -> None:
    held = ""
    for piece in pieces:
        text = held + piece.decode("latin-1")
        sizes, held = read_sizes(text)
        assert len(held) <= LARGEST_SIZE
        assert text.endswith(held)
        assert all(0 < one.columns <= 65_535 and 0 < one.rows <= 65_535 for one in sizes)
    sizes, held = read_sizes(size(80).decode())
    assert (sizes, held) == ([TerminalSize(columns=80, rows=24)], "")
