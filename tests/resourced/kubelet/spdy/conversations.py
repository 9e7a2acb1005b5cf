"""A session that speaks SPDY with a peer in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from redbox_resourced.kubelet.spdy.limits import SpdyLimits
from redbox_resourced.kubelet.spdy.session import SpdySession, SpdyStream
from redbox_resourced.kubelet.turns import Turn
from tests.resourced.kubelet.spdy.harness import MemoryWire, Peer

SMALL = SpdyLimits(streams=3, stream_bytes=100, session_bytes=150, backlog_bytes=1000)


class Conversation:
    """A session that runs, and its peer."""

    def __init__(self, limits: SpdyLimits | None = None, turn: Turn | None = None) -> None:
        self.wire, self.peer = MemoryWire(), Peer()
        self.session = SpdySession(self.wire, limits, turn)
        self._fed = 0

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.wire.incoming.put_nowait(frame)

    async def settle(self) -> None:
        """Until nothing moves any more; then the peer reads."""
        for _ in range(20):
            await asyncio.sleep(0)
        fresh, self._fed = bytes(self.wire.sent[self._fed :]), len(self.wire.sent)
        self.peer.feed(fresh)

    async def opened(self, **headers: str) -> SpdyStream:
        self.send(self.peer.open(headers)[1])
        stream = await asyncio.wait_for(self.session.accept(), 60)
        assert stream is not None
        return stream


@asynccontextmanager
async def conversation(limits: SpdyLimits | None = None) -> AsyncIterator[Conversation]:
    talk = Conversation(limits)
    running = asyncio.create_task(talk.session.run())
    try:
        yield talk
    finally:
        talk.send(b"")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
