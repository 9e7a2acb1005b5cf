"""The buffer of TLS connections: one for all, and large enough for what is sent through them."""

from __future__ import annotations

import asyncio
import os
import ssl
from asyncio import sslproto
from pathlib import Path
from typing import cast

import pytest

from redbox_shared.tls_buffers import PIECE_BYTES, share_tls_buffer
from tests.companion.certificates import make_certificate

SENT = [os.urandom(1_000_000) for _ in range(3)]


class RecordedBio:
    """What OpenSSL was given at once: it keeps room for the most, also of an idle connection."""

    def __init__(self, bio: ssl.MemoryBIO) -> None:
        self._bio, self.largest = bio, 0

    def write(self, data: bytes) -> int:
        self.largest = max(self.largest, len(data))
        return self._bio.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._bio, name)


async def test_connections_share_one_buffer_that_carries_everything_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sslproto, "SSLProtocol", sslproto.SSLProtocol)
    share_tls_buffer()
    certificate, key = make_certificate(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(100_000):
            writer.write(piece)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "localhost", 0, ssl=theirs) as server:
        port = server.sockets[0].getsockname()[1]
        ours = ssl.create_default_context(cafile=certificate)

        async def echoed(sent: bytes) -> object:
            reader, writer = await asyncio.open_connection("localhost", port, ssl=ours)
            protocol = writer.transport._ssl_protocol  # type: ignore[attr-defined]
            protocol._incoming = RecordedBio(protocol._incoming)
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent
            buffer: object = protocol._ssl_buffer
            assert 0 < protocol._incoming.largest <= PIECE_BYTES
            writer.close()
            return buffer

        first, *others = await asyncio.gather(*map(echoed, SENT))
        assert all(other is first for other in others)
        assert len(cast("bytearray", first)) == sslproto.SSLProtocol.__base__.max_size  # type: ignore[union-attr]
