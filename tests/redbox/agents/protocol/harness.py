"""A process that should be an agent and answers what it is told to, and a client that asks it everything."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redbox.agents.agent import AgentClient
from redbox.agents.errors import AgentError
from redbox.agents.program.wire import hello_line
from redbox.agents.protocol.answers import ReadPrecondition
from redbox.agents.protocol.connection import AgentConnection
from redbox.agents.protocol.frames import AgentFrame, FrameDecoder, FrameKind, encode_frame

HELLO = {"protocol": 2, "uid": 7, "home": "/", "pid": 2, "boot": "b", "start": "1"}
FACTS = {"kind": "file", "size": 1, "device": 1, "inode": 1, "modified_ns": 1, "mode": 1, "uid": 1}
PIECE = {**FACTS, "offset": 0, "same": True, "tail": ""}


class Peer:
    """A process that answers what a test tells it to."""

    preamble = b""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.written = bytearray()
        self.requests = FrameDecoder()
        self.received: deque[AgentFrame] = deque()
        self.abandoned = False
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._waits = False

    async def read(self) -> bytes:
        self._waits = self._answers.empty()
        try:
            return await self._answers.get()
        finally:
            self._waits = False

    @property
    def is_read(self) -> bool:
        """Whether all that was answered so far has been taken, and more is waited for."""
        return self._answers.empty() and self._waits

    def answer(self, *data: bytes) -> None:
        for piece in data:
            self._answers.put_nowait(piece)

    def write(self, data: bytes) -> None:
        if not self.written:
            self.written += data
            self.answer(hello_line(data.strip()) + encode_frame(FrameKind.EVENT, 0, HELLO))
            return
        self.received.extend(self.requests.feed(data))

    async def drain(self) -> None:
        await asyncio.sleep(0)
        await self.reads.wait()

    def close(self) -> None:
        self.answer(b"")

    def abandon(self) -> None:
        self.abandoned = True
        self.answer(b"")

    kill = abandon

    async def wait(self) -> int:
        return 0

    def stderr_text(self) -> str:
        return ""


@asynccontextmanager
async def conversation() -> AsyncIterator[tuple[AgentClient, Peer]]:
    peer = Peer()
    connection = AgentConnection(peer)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        hello = await connection.greet()
        serving = tasks.create_task(connection.serve())
        yield AgentClient(connection, hello), peer
        connection.close()
        await serving


async def ask_everything(agent: AgentClient) -> list[BaseException | object]:
    async def drained(parts: Any) -> list[Any]:
        return [part async for part in parts]

    return await asyncio.gather(
        agent.run(["/bin/true"], deadline=10, output_limit=1000),
        agent.read("/f", limit=1000, expect=ReadPrecondition(1, 1, "")),
        agent.stat("/f"),
        agent.glob("/", ["*"], limit=3),
        agent.recall("id"),
        drained(agent.tar("/", ["x"])),
        agent.make_directory("/d"),
        agent.run(["/bin/true"], deadline=10, keep="id"),
        return_exceptions=True,
    )


def only_agent_errors(outcomes: list[BaseException | object]) -> bool:
    return all(isinstance(o, AgentError) or not isinstance(o, BaseException) for o in outcomes)
