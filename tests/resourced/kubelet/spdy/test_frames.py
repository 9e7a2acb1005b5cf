"""Bytes of SPDY/3.1 to events: whatever comes, and however it is cut."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_resourced.kubelet.spdy import frames
from redbox_resourced.kubelet.spdy.dictionary import DICTIONARY
from redbox_resourced.kubelet.spdy.errors import SpdyError
from redbox_resourced.kubelet.spdy.frames import (
    Event,
    FrameParser,
    InitialWindow,
    NewStream,
    PeerLeaves,
    Ping,
    StreamData,
    StreamReset,
    WindowGrown,
)
from redbox_resourced.kubelet.spdy.headers import MAX_BLOCK, MAX_HEADERS, HeaderPacker
from tests.resourced.kubelet.spdy import harness
from tests.resourced.kubelet.spdy.harness import Peer, control, data, pair, ping, settings

STREAM_IDS = st.integers(0, 9)
FRAMES = st.one_of(
    st.builds(data, STREAM_IDS, st.binary(max_size=200), is_last=st.booleans()),
    st.builds(pair, st.sampled_from([harness.RST, harness.GOAWAY, harness.WINDOW]), STREAM_IDS, STREAM_IDS),
    st.builds(ping, STREAM_IDS),
    st.builds(settings, STREAM_IDS, st.integers(0, 2**32 - 1)),
    st.builds(control, st.integers(0, 12), st.binary(max_size=40), st.integers(0, 255)),
    st.binary(max_size=30),
)


def events(pieces: Sequence[bytes]) -> list[Event]:
    parser = FrameParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def test_the_dictionary_is_that_of_spdy_3() -> None:
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2  # which each compressed stream of SPDY/3 names


def test_each_frame_is_its_event() -> None:
    sent = [
        Peer().open_as(1, {"streamType": "stdin"}),
        data(1, b"abc", is_last=True),
        pair(harness.RST, 1, 5),
        ping(7),
        settings(7, 1000),
        pair(harness.WINDOW, 3, 99),
        control(99, b"unknown"),
        pair(harness.GOAWAY, 1, 0),
    ]
    assert events([b"".join(sent)]) == [
        NewStream(1, {"streamtype": "stdin"}, is_last=False),
        StreamData(1, b"abc", is_last=True),
        StreamReset(1),
        Ping(7),
        InitialWindow(1000),
        WindowGrown(3, 99),
        PeerLeaves(),
    ]


def test_headers_of_later_streams_need_those_before() -> None:
    peer = Peer()
    sent = [peer.open({"streamtype": "data", "port": "80", "requestid": str(count)})[1] for count in range(5)]
    opened = [event.headers["requestid"] for event in events(sent) if isinstance(event, NewStream)]
    assert opened == ["0", "1", "2", "3", "4"]


def test_a_large_data_frame_is_passed_on_as_it_arrives() -> None:
    parser = FrameParser()
    head = frames.data_header(1, 2**24 - 1, is_last=True)
    assert list(parser.feed(head + b"x" * 1000)) == [StreamData(1, b"x" * 1000, is_last=False)]
    assert parser.held_bytes == 0


@pytest.mark.parametrize(
    "sent",
    [
        control(harness.SYN_STREAM, b"\0" * 9),
        control(harness.SYN_STREAM, b"\0" * 10 + b"no zlib"),
        control(harness.PING, b"\0" * 5),
        control(harness.RST, b"\0" * 7),
        control(harness.SETTINGS, struct.pack(">III", 2, 7, 1)),
        struct.pack(">HHI", 0x8002, harness.PING, 4) + b"\0" * 4,
        struct.pack(">HHI", 0x8003, harness.SETTINGS, frames.MAX_CONTROL_FRAME + 1),
        data(0, b"x"),
    ],
)
def test_a_broken_frame_is_an_error(sent: bytes) -> None:
    with pytest.raises(SpdyError):
        events([sent])


@pytest.mark.parametrize(
    "headers", [{"a": "x" * MAX_BLOCK}, {str(count): "" for count in range(MAX_HEADERS + 1)}, {"": "x"}]
)
def test_a_header_block_that_is_too_large_is_an_error(headers: dict[str, str]) -> None:
    with pytest.raises(SpdyError):
        events([Peer().open_as(1, headers)])


def test_a_header_block_that_unpacks_without_end_is_not_unpacked() -> None:
    bomb = zlib.compressobj(9, zdict=DICTIONARY)
    block = bomb.compress(b"\0" * 10_000_000) + bomb.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(SpdyError, match="larger"):
        events([control(harness.SYN_STREAM, b"\0" * 10 + block)])


@given(st.lists(st.sampled_from([b"\0", b"\xff\xff\xff\xff", b"a", b"\0\0\0\1"]), max_size=12))
def test_lengths_in_header_blocks_are_not_believed(parts: list[bytes]) -> None:
    packed = zlib.compressobj(zdict=DICTIONARY)
    block = packed.compress(b"".join(parts)) + packed.flush(zlib.Z_SYNC_FLUSH)
    _only_spdy_errors([control(harness.SYN_STREAM, b"\0\0\0\1" + b"\0" * 6 + block)])


@given(st.lists(FRAMES, max_size=20), st.lists(st.integers(1, 50), max_size=20))
def test_whatever_comes_is_events_or_an_error_however_it_is_cut(sent: list[bytes], cuts: list[int]) -> None:
    whole = _only_spdy_errors([b"".join(sent)])
    assert _only_spdy_errors(_cut(b"".join(sent), cuts)) == whole


@given(st.binary(max_size=400))
def test_bytes_of_anything_are_events_or_an_error(sent: bytes) -> None:
    _only_spdy_errors([sent])


def _only_spdy_errors(pieces: Sequence[bytes]) -> list[object]:
    """The events, with the bytes of each stream joined; `error` is the last where there is one."""
    parser = FrameParser()
    found: list[object] = []
    try:
        for piece in pieces:
            for event in parser.feed(piece):
                _join(found, event)
            assert parser.held_bytes <= frames.MAX_CONTROL_FRAME + 8
    except SpdyError:
        found.append("error")
    return found


def _join(found: list[object], event: Event) -> None:
    match (found[-1] if found else None, event):
        case (StreamData(one, first, False), StreamData(other, second, is_last)) if one == other:
            found[-1] = StreamData(one, first + second, is_last)
        case _:
            found.append(event)


def _cut(sent: bytes, cuts: Sequence[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in cuts:
        pieces.append(sent[at : at + size])
        at += size
    return [*pieces, sent[at:]]


def test_an_answer_has_headers_that_the_peer_unpacks() -> None:
    peer, packer = Peer(), HeaderPacker()
    peer.feed(frames.reply_frame(1, packer.pack({})) + frames.reply_frame(3, packer.pack({"a": "b"})))
    assert peer.of("reply") == [(1, {}), (3, {"a": "b"})]
