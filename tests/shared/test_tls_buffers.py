"""Buffers of TLS connections: small, and large enough for what is sent through them."""

from __future__ import annotations

import asyncio
import os
import ssl
from asyncio import sslproto
from pathlib import Path

import pytest

from redbox_shared.tls_buffers import BUFFER_BYTES, shrink_tls_buffers
from tests.companion.certificates import make_certificate

SENT = os.urandom(1_000_000)


async def test_connections_have_small_buffers_that_carry_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    shrink_tls_buffers()
    certificate, key = make_certificate(tmp_path)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(len(SENT)))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "localhost", 0, ssl=theirs) as server:
        port = server.sockets[0].getsockname()[1]
        ours = ssl.create_default_context(cafile=certificate)
        reader, writer = await asyncio.open_connection("localhost", port, ssl=ours)
        writer.write(SENT)
        assert await reader.readexactly(len(SENT)) == SENT
        assert len(writer.transport._ssl_protocol._ssl_buffer) == BUFFER_BYTES  # type: ignore[attr-defined]
        writer.close()
