"""Errors of the streams between an API server and a kubelet.

SpdyError            the peer broke the protocol: the connection ends with GOAWAY
StreamEnded          a stream or its connection has ended: nothing more can be sent on it
"""

from __future__ import annotations


class SpdyError(Exception):
    """The bytes are not SPDY/3.1, or exceed a bound of ours."""


class StreamEnded(Exception):
    """The peer has reset the stream, or the connection has ended."""
