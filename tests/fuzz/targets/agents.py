"""An agent's frames: what a hostile agent sends to red-box, and what the agent's program reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import strategies as st

from redbox.agents.program.wire import PREFIX, WINDOW
from redbox.agents.protocol.frames import FrameKind, encode_frame
from redbox.agents.transports.bootstrap import bootstrap_preamble
from tests.fuzz.mutations import Pieces, sequences
from tests.fuzz.target import Play, Target
from tests.fuzz.targets.exchange import rest, send
from tests.redbox.agents.harness import LaunchedTransport, tests_user
from tests.redbox.agents.protocol.harness import (
    FACTS,
    PIECE,
    ask_everything,
    conversation,
    only_agent_errors,
)

NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 9, 2**32 - 1])
WORDS = st.sampled_from(
    sorted({*PIECE, "code", "state", "fd", "bytes", "message", "path", "truncated", "stdout", "timed_out"})
)
VALUES = st.one_of(
    st.integers(-5, 10**20),
    st.text(max_size=9),
    st.booleans(),
    st.floats(),
    st.none(),
    st.sampled_from(["file", "ended", "running", "system", "QUFB", "\ud800", [1], {"a": 1}, 10**400]),
)


def raw_frame(kind: int, number: int, header: bytes, payload: bytes = b"") -> bytes:
    return PREFIX.pack(kind, number, len(header), len(payload)) + header + payload


HEADERS = st.one_of(
    st.dictionaries(WORDS, VALUES, max_size=12).map(lambda header: json.dumps(header).encode()),
    st.sampled_from([PIECE, FACTS, {**FACTS, "path": "a"}, {"fd": 1}, {"bytes": 1}, {"bytes": WINDOW}]).map(
        lambda header: json.dumps(header).encode()
    ),
    st.sampled_from(
        [b"", b"[]", b"null", b"[" * 3000, b"9" * 5000, b'{"bytes":1e400}', b"\xff", b'"\\ud800"']
    ),
)
ANSWERS = st.builds(raw_frame, st.integers(0, 11), NUMBERS, HEADERS, st.binary(max_size=120))


@asynccontextmanager
async def servers() -> AsyncIterator[Play]:
    async def play(pieces: Pieces) -> None:
        """Every request has an answer or an AgentError."""
        async with conversation() as (agent, peer):
            everything = asyncio.create_task(ask_everything(agent))
            await asyncio.sleep(0)
            peer.answer(*[piece for piece in pieces if piece], b"")
            outcomes = await everything
            assert only_agent_errors(outcomes), outcomes

    yield play


# ---- the agent's program
RUN = {
    "op": "run", "argv": ["/bin/true"], "env": {}, "account_env": False, "cwd": None, "stdin": 0,
    "inherit": [], "deadline": 5, "output_limit": 100, "keep": None,
}  # fmt: skip
READ = {
    "op": "read",
    "path": "/etc/hostname",
    "offset": 0,
    "limit": 9,
    "expect": None,
    "tail": True,
    "reuse_s": 0,
}
REQUESTS: list[dict[str, Any]] = [
    RUN,
    {**RUN, "stdin": 9, "inherit": [["@", 3]]},
    READ,
    {**READ, "offset": -3, "limit": 10**30},
    {"op": "stat", "path": "/"},
    {"op": "glob", "directory": "/etc", "patterns": ["host*", "**/[", "["], "limit": 3},
    {"op": "recall", "keep": "x"},
    {"op": "tar", "directory": "/etc", "paths": ["hostname", ".."]},
    {"op": "unpack", "directory": "/nowhere/u", "wanted": "/nowhere/u/f"},
    {"op": "write", "path": "/nowhere/w", "mode": 384},
    {"op": "no such"},
    {},
]
CHANGED = [
    "op", "offset", "limit", "deadline", "env", "stdin", "patterns", "paths", "wanted", "mode", "expect",
    "inherit", "keep", "output_limit", "reuse_s",
]  # fmt: skip
OPERATIONS = st.one_of(
    st.sampled_from(REQUESTS),
    st.builds(
        lambda request, word, value: {**request, word: value},
        st.sampled_from(REQUESTS),
        st.sampled_from(CHANGED),
        VALUES,
    ),
).map(lambda request: json.dumps(request).encode())
TO_AGENT = st.one_of(
    st.builds(raw_frame, st.just(FrameKind.REQUEST), NUMBERS, OPERATIONS, st.binary(max_size=20)),
    st.builds(
        raw_frame,
        st.sampled_from([FrameKind.DATA, FrameKind.END, FrameKind.CREDIT, FrameKind.CANCEL, FrameKind.PING]),
        NUMBERS,
        HEADERS,
        st.binary(max_size=80),
    ),
)


@asynccontextmanager
async def programs() -> AsyncIterator[Play]:
    """The real one, a process for each example: it ends with its server's last frame, and says nothing."""
    argv, preamble = LaunchedTransport().argv(tests_user()), bootstrap_preamble()

    async def play(pieces: Pieces) -> None:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        process = await asyncio.create_subprocess_exec(*argv, **pipes)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        try:
            reading = asyncio.gather(rest(process.stdout, quiet_s=60), rest(process.stderr, quiet_s=60))
            await send(process.stdin, [preamble, b"nonce\n", *pieces])
            process.stdin.close()
            _, errors = await reading
            assert (await process.wait(), errors) == (0, b"")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    yield play


STAT = raw_frame(FrameKind.REQUEST, 1, b'{"op": "stat", "path": "/"}')
TARGETS = (
    Target("agent-answers", sequences(ANSWERS), servers, [encode_frame(FrameKind.DONE, 1, FACTS)], in_ci=100),
    Target("agent-program", sequences(TO_AGENT), programs, [STAT], in_ci=30),
)
