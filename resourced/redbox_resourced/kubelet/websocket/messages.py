"""Messages of channel.k8s.io: a byte for the channel, then its data; or both as text, the data in base64."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

CLOSE = 255
"""Of v5: the channel that follows gets no more input."""
DIGIT = ord("0")


class BadMessage(Exception):
    """The client sent what no channel can take; the text is for the log."""


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """Of one channel; `is_last`: nothing more comes on it."""

    channel: int
    data: bytes
    is_last: bool = False


@dataclass(frozen=True)
class Subprotocol:
    """How the messages of a connection are written."""

    name: str
    is_text: bool = False
    closes_input: bool = False
    has_status: bool = True
    """As since v4; before, the error channel has the message of a failure alone."""

    def read(self, data: bytes) -> ChannelMessage | None:
        """None for a message without a channel, which is allowed. Raises BadMessage."""
        if not data:
            return None
        if self.closes_input and data[0] == CLOSE:
            if len(data) != 2:  # noqa: PLR2004 (the signal and the channel)
                raise BadMessage("a close signal does not name one channel")
            return ChannelMessage(data[1], b"", is_last=True)
        if not self.is_text:
            return ChannelMessage(data[0], data[1:])
        try:
            return ChannelMessage(data[0] - DIGIT, base64.b64decode(data[1:], validate=True))
        except binascii.Error as error:
            raise BadMessage(f"a message is not base64: {error}") from None

    def write(self, channel: int, data: bytes) -> bytes:
        if not self.is_text:
            return bytes([channel]) + data
        return bytes([DIGIT + channel]) + base64.b64encode(data)


BINARY = Subprotocol("v4.channel.k8s.io")
UNNAMED = Subprotocol("", has_status=False)
"""Of a client that names none, as kubelets allow."""
SUBPROTOCOLS = (
    BINARY,
    Subprotocol("v4.base64.channel.k8s.io", is_text=True),
    Subprotocol("v5.channel.k8s.io", closes_input=True),
    Subprotocol("channel.k8s.io", has_status=False),
    Subprotocol("base64.channel.k8s.io", is_text=True, has_status=False),
)
