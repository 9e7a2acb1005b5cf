"""WebSocket frames: however the bytes are cut, and whatever a server sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_companion.streams.frames import BINARY, CLOSE, PING, MessageReader, ProtocolError, encode, masked
from tests.companion.websocket_server import server_frame

MESSAGES = st.lists(st.tuples(st.sampled_from([BINARY, PING, CLOSE]), st.binary(max_size=120)), max_size=8)


@given(MESSAGES, st.integers(1, 50))
def test_messages_are_the_same_however_their_bytes_are_cut(
    messages: list[tuple[int, bytes]], piece: int
) -> None:
    raw = b"".join(server_frame(kind, payload) for kind, payload in messages)
    reader = MessageReader()
    cut = [raw[start : start + piece] for start in range(0, len(raw), piece)]
    assert [message for part in cut for message in reader.feed(part)] == messages


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_bytes_are_messages_of_bounded_size_or_refused(received: list[bytes]) -> None:
    reader = MessageReader(largest=200)
    try:
        for piece in received:
            assert all(len(payload) <= 200 for _, payload in reader.feed(piece))
    except ProtocolError:
        pass


def test_a_message_in_several_frames_is_whole_and_a_ping_may_come_between() -> None:
    raw = b"\x02\x02ab" + server_frame(PING, b"!") + b"\x80\x01c"
    assert list(MessageReader().feed(raw)) == [(PING, b"!"), (BINARY, b"abc")]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x82\x81aaaab",  # masked
        b"\xc2\x01a",  # a reserved bit
        b"\x83\x01a",  # a kind that is none
        b"\x80\x01a",  # the next frame of no message
        b"\x02\x01a\x82\x01b",  # a message within another
        b"\x09\x01a",  # a ping in parts
        b"\x89\x7e\x00\x7e",  # a long ping
        b"\x82\x7f" + b"\xff" * 8,  # larger than any memory
        b"\x02\x7e\x00\xc8" + b"a" * 200 + b"\x80\x01b",  # larger in parts
    ],
)
def test_what_no_server_may_send_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(MessageReader(largest=200).feed(raw))


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_of_ours_is_masked_and_says_its_length(size: int) -> None:
    payload = b"x" * size
    frame = encode(BINARY, payload)
    head = len(frame) - size - 4
    assert frame[1] & 0x80
    assert masked(frame[head + 4 :], frame[head : head + 4]) == payload
    (unmasked,) = MessageReader().feed(frame[:1] + bytes([frame[1] & 0x7F]) + frame[2:head] + payload)
    assert unmasked == (BINARY, payload)
