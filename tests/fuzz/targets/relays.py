"""A relay's frames: what a hostile relay sends to red-box, and what the relay's program reads.

Orders are not mutated: marshal reads only those of the server that has sent the program itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import strategies as st

from redbox.agents.errors import AgentError
from redbox.relay.program import frames
from redbox.sessions.errors import SessionEnded
from redbox.sessions.relay_connection import RelayStreamHandle, StreamStatus
from tests.fuzz.mutations import Pieces, sequences
from tests.fuzz.target import Play, Target
from tests.redbox.sessions.fakes import FakePipe, served

NUMBERS = st.sampled_from([0, 1, 2, 3, 2**31, 2**32 - 1])
PAYLOADS = st.one_of(
    st.binary(max_size=100),
    st.sampled_from(
        [b"\1x", b"\2x", b"\1", b"\0\0\0\1", b"\xff" * 4, b'{"code": 0}', b'{"code": 1e400}',
         b'{"code":' + b"9" * 5000, b'{"reason": 1, "message": []}', b"[" * 9000, b"{}", b"[]", b"",
         b'{"reason": "\\ud800", "message": "x"}']
    ),
)  # fmt: skip
ANSWERS = st.builds(
    frames.frame_bytes, st.sampled_from(sorted({0, 11, 12, 255, *frames.KINDS})), NUMBERS, PAYLOADS
)


@asynccontextmanager
async def servers() -> AsyncIterator[Play]:
    async def play(pieces: Pieces) -> None:
        """Each of its streams has its status, or ends as its relay did."""
        pipe = FakePipe()
        async with (
            served(pipe) as connection,
            connection.open({"kind": "command"}) as one,
            connection.open({"kind": "port"}) as two,
        ):
            for piece in [*pieces, b""]:
                pipe.output.put_nowait(piece)
            await asyncio.gather(until_end(one), until_end(two))

    yield play


async def until_end(stream: RelayStreamHandle) -> None:
    try:
        await stream.send(b"input")
        while not isinstance(await stream.receive(), StreamStatus):
            pass
    except (SessionEnded, AgentError):
        pass


STATUS = frames.frame_bytes(frames.STATUS, 1, b'{"code": 0}')
TARGETS = (Target("relay-answers", sequences(ANSWERS), servers, [STATUS], in_ci=150),)
