"""A relay's step that stands in for one on a node: what it sends, and whether it takes what is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from redbox.relay.program import frames
from redbox.relay.program.frames import RelayDecoder, RelayFrame
from redbox.sessions.relay_connection import RelayConnection

HELLO = frames.frame_bytes(frames.HELLO)


class FakePipe:
    """The input and output of a step."""

    def __init__(self) -> None:
        self.output: asyncio.Queue[bytes] = asyncio.Queue()
        self.output.put_nowait(HELLO)
        self.takes_input = asyncio.Event()
        self.takes_input.set()
        self.sent: list[RelayFrame] = []
        self._decoder = RelayDecoder()

    async def send(self, data: bytes) -> None:
        await self.takes_input.wait()
        for frame in self._decoder.feed(data):
            self.sent.append(frame)

    async def receive(self) -> bytes:
        return await self.output.get()

    def message(self) -> str:
        return "it has ended"

    def emit(self, kind: int, number: int, payload: bytes = b"", count: int = 1) -> None:
        self.output.put_nowait(frames.frame_bytes(kind, number, payload) * count)

    def count_of(self, kind: int) -> int:
        return sum(frame.kind == kind for frame in self.sent)


@asynccontextmanager
async def served(
    pipe: FakePipe, is_suspended: Callable[[], bool] = lambda: False
) -> AsyncIterator[RelayConnection]:
    """A connection to a relay, while it is served; and its end."""
    connection = RelayConnection(pipe, "n1", "rbx-0", is_suspended)
    serving = asyncio.create_task(connection.serve())
    try:
        yield connection
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what has no event."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.01)
