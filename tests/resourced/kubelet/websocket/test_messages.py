"""Messages of channels: what is written is read, and no bytes of a client are more than a bad message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_resourced.kubelet.websocket.messages import (
    BINARY,
    SUBPROTOCOLS,
    BadMessage,
    ChannelMessage,
    Subprotocol,
)

EACH = pytest.mark.parametrize("subprotocol", SUBPROTOCOLS, ids=lambda each: each.name)


@EACH
@given(channel=st.integers(0, 9), data=st.binary(max_size=64))
def test_what_is_written_is_read(subprotocol: Subprotocol, channel: int, data: bytes) -> None:
    assert subprotocol.read(subprotocol.write(channel, data)) == ChannelMessage(channel, data)


@EACH
@given(message=st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_bad_one(subprotocol: Subprotocol, message: bytes) -> None:
    try:
        found = subprotocol.read(message)
    except BadMessage:
        return
    assert (found is None) == (message == b"")
    assert found is None or len(found.data) < len(message)


@pytest.mark.parametrize("message", [b"\xff", b"\xff\0\0"])
def test_a_close_signal_names_one_channel(message: bytes) -> None:
    (v5,) = (each for each in SUBPROTOCOLS if each.closes_input)
    with pytest.raises(BadMessage, match="does not name one channel"):
        v5.read(message)
    assert BINARY.read(message) == ChannelMessage(255, message[1:])
