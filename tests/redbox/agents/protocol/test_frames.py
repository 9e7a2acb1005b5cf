"""Frames survive any cut, and nothing that a peer sends does more than end the conversation."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.agents.errors import FrameError
from redbox.agents.program import wire
from redbox.agents.program.wire import MAX_HEADER, MAX_PAYLOAD, PREFIX, hello_line
from redbox.agents.protocol.frames import (
    MAX_BANNER,
    AgentFrame,
    FrameDecoder,
    FrameKind,
    HelloScanner,
    encode_frame,
)

headers = st.dictionaries(
    st.text(max_size=8), st.one_of(st.integers(), st.text(max_size=20), st.booleans(), st.none()), max_size=4
)
frames = st.tuples(st.sampled_from(FrameKind), st.integers(0, 2**32 - 1), headers, st.binary(max_size=300))
NONCE = b"0123456789abcdef"


def decode_in_cuts(data: bytes, cuts: list[int]) -> list[AgentFrame]:
    decoder = FrameDecoder()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [frame for start, end in pairwise(edges) for frame in decoder.feed(data[start:end])]


def test_kinds_have_the_numbers_that_the_agent_gives_them() -> None:
    assert {kind.name: kind.value for kind in FrameKind} == {k.name: getattr(wire, k.name) for k in FrameKind}


@given(st.lists(frames, max_size=5), st.lists(st.integers(0, 10**6), max_size=8))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sent: list[tuple[FrameKind, int, dict[str, Any], bytes]], cuts: list[int]
) -> None:
    received = decode_in_cuts(b"".join(encode_frame(*frame) for frame in sent), cuts)
    assert [(f.kind, f.request, f.header, f.payload) for f in received] == sent


@given(st.lists(st.binary(max_size=400), max_size=6))
def test_any_bytes_are_frames_or_a_frame_error(pieces: list[bytes]) -> None:
    decoder = FrameDecoder()
    try:
        for piece in pieces:
            list(decoder.feed(piece))
    except FrameError:
        return


@given(st.binary(max_size=200))
def test_any_header_is_an_object_or_a_frame_error(header: bytes) -> None:
    data = PREFIX.pack(FrameKind.EVENT, 1, len(header), 0) + header
    try:
        (frame,) = FrameDecoder().feed(data)
    except FrameError:
        return
    assert frame.header == ({} if not header else json.loads(header))


@pytest.mark.parametrize(
    "header", [b"[" * 100_000, b"1" * 10_000, b"null", b'"text"', b"{", b'{"a":' * 50_000, b"\xff\xfe"]
)
def test_hostile_json_is_a_frame_error(header: bytes) -> None:
    with pytest.raises(FrameError):
        list(FrameDecoder().feed(PREFIX.pack(FrameKind.EVENT, 1, len(header), 0) + header))


@pytest.mark.parametrize("lengths", [(MAX_HEADER + 1, 0), (0, MAX_PAYLOAD + 1), (2**32 - 1, 2**32 - 1)])
def test_a_frame_that_is_too_large_is_refused_before_it_has_come(lengths: tuple[int, int]) -> None:
    with pytest.raises(FrameError, match="a frame of"):
        list(FrameDecoder().feed(PREFIX.pack(FrameKind.DATA, 1, *lengths)))


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(FrameError, match="too large"):
        encode_frame(FrameKind.REQUEST, 1, {"argv": ["x" * MAX_HEADER]})


@given(st.binary(max_size=MAX_BANNER), st.binary(max_size=50), st.lists(st.integers(0, 10**6), max_size=5))
def test_the_hello_is_found_behind_any_banner(banner: bytes, rest: bytes, cuts: list[int]) -> None:
    data = banner + hello_line(NONCE) + rest
    scanner = HelloScanner(NONCE)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found, after = None, b""
    for start, end in pairwise(edges):
        if found is None:
            found = scanner.feed(data[start:end])
        else:
            after += data[start:end]
    assert (found or b"") + after == rest


def test_a_banner_without_end_is_given_up() -> None:
    scanner = HelloScanner(NONCE)
    assert scanner.feed(b"=" * MAX_BANNER) is None
    with pytest.raises(FrameError, match="no hello"):
        scanner.feed(b"=" * 1000)


def test_a_shell_that_echoes_the_nonce_is_no_agent() -> None:
    assert HelloScanner(NONCE).feed(NONCE + b"\n") is None


def test_the_hello_to_another_nonce_is_none() -> None:
    assert HelloScanner(NONCE).feed(hello_line(b"another")) is None
