"""A server on loopback that answers as a test says: for faults that slurmrestd cannot be brought to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ScriptedServer:
    """`answer` gets method and path, and returns the bytes of a whole response; None: no answer at all."""

    answer: Callable[[str, str], bytes | None]
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    keeps_sending: bytes = b""
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = {
                key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines[1:])
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            method, path, _ = lines[0].split(" ")
            self.requests.append((method, path, json.loads(body) if body else None))
            self.tokens.append(headers.get("x-slurm-user-token", ""))
            made = self.answer(method, path)
            if made is None:
                await reader.read()  # until the client gives up
                return
            writer.write(made)
            while self.keeps_sending:
                writer.write(self.keeps_sending)
                await writer.drain()
                await asyncio.sleep(0)  # the client's turn
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def response(body: object, status: int = 200, *, length: int | None = None) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(raw) if length is None else length
    return f"HTTP/1.1 {status} X\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n".encode() + raw


@asynccontextmanager
async def serving(
    answer: Callable[[str, str], bytes | None], *, keeps_sending: bytes = b""
) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(answer, keeps_sending=keeps_sending)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
