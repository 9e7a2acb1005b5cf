"""red-box's WebSockets into a running job: frames, channels and documents, through a real agent and relay."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import strategies as st

from redbox_api.sessions.parts import PortChannel, SessionChannel, port_message
from redbox_companion.streams.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, MessageReader
from redbox_shared.wire import EXEC_PROTOCOL, PORTS_PROTOCOL
from tests.fuzz.mutations import Pieces, mutated, sequences
from tests.fuzz.target import Play, Target
from tests.fuzz.targets.exchange import connected, rest, send, status_of
from tests.redbox.http.harness import ALICE_UID, Stand, standing
from tests.redbox.http.routes.harness import run, running

KEY = b"\1\2\3\4"
PORT = b"55555"
"""Of the examples, instead of that of the server that listens in the job."""
FINAL, MASKED = 0x80, 0x80
TWO_BYTES, EIGHT_BYTES = 126, 127


def frame(kind: int, payload: bytes, *, final: bool = True) -> bytes:
    """As a client sends it, with a fixed mask."""
    size = len(payload)
    head = bytes((FINAL * final | kind,))
    if size < TWO_BYTES:
        head += bytes((MASKED | size,))
    elif size < 1 << 16:
        head += bytes((MASKED | TWO_BYTES,)) + size.to_bytes(2)
    else:
        head += bytes((MASKED | EIGHT_BYTES,)) + size.to_bytes(8)
    return head + KEY + bytes(byte ^ KEY[at % 4] for at, byte in enumerate(payload))


def document(**fields: object) -> bytes:
    return json.dumps(fields).encode()


COMMANDS = st.sampled_from(
    [
        document(command=["cat"]),
        document(command=["cat"], tty=True, term="xterm", size={"columns": 1, "rows": 1}),
        document(command=["true"], stdin=False),
        document(command=["no-such-program"]),
        document(command=["cat"], node="n9"),
        document(command=["cat"], container="main"),
        document(command=["cat"], task=3),
        document(command=[]),
        document(command=["\0"]),
        document(command=["\ud800"]),
        document(attach=True, container="main"),
        document(command=["true"] * 3, odd=1),
        b"{",
        b"[" * 5000,
        b"",
    ]
)
CHANNELS = st.sampled_from([*(int(channel) for channel in SessionChannel), 9, 200])
CONTENTS = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(
        [b"", b"\0", b"\1", b'{"Width":80,"Height":24}', b'{"Width":0,"Height":-1}', b'{"Width":1e99}',
         b"[" * 2000, b"9" * 5000, b"x" * 70_000]
    ),
)  # fmt: skip
OTHER_FRAMES = st.one_of(
    st.builds(frame, st.sampled_from([TEXT, BINARY]), CONTENTS, final=st.booleans()),
    st.builds(frame, st.sampled_from([PING, PONG, CLOSE, CONTINUATION, 3, 11]), st.binary(max_size=130)),
)
MESSAGES = st.builds(lambda channel, content: frame(BINARY, bytes((channel,)) + content), CHANNELS, CONTENTS)


@st.composite
def commands(draw: st.DrawFn) -> Pieces:
    first = frame(TEXT, draw(COMMANDS))
    return [first, *draw(st.lists(st.one_of(MESSAGES, MESSAGES, OTHER_FRAMES), max_size=10))]


PORT_NUMBERS = st.sampled_from([0, 1, 2, 3, 2**32 - 1])
OPENED = st.sampled_from(
    [
        b'{"port": 55555}',
        b'{"port": 55555, "probe": true}',
        b'{"port": 1}',
        b'{"port": 0}',
        b'{"port": 55555, "node": "n9"}',
        b'{"port": 55555, "node": "-"}',
        b'{"port": "x"}',
        b"{",
    ]
)
PORT_MESSAGES = st.one_of(
    st.builds(
        lambda channel, number, content: frame(BINARY, port_message(channel, number, content)),
        st.sampled_from(PortChannel),
        PORT_NUMBERS,
        st.one_of(CONTENTS, st.sampled_from([b"\0\0\0\1", b"\xff" * 4, b"\0", b"\1"])),
    ),
    st.builds(
        lambda number, content: frame(BINARY, port_message(PortChannel.OPEN, number, content)),
        PORT_NUMBERS,
        OPENED,
    ),
)


async def converse(stand: Stand, path: str, protocol: str, pieces: Pieces, port: bytes = PORT) -> None:
    """What comes are frames of a server, whatever was sent; at the latest the client's end is the end."""
    head = [
        f"GET /v1/jobs/k1/{path} HTTP/1.1",
        "Host: r",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        f"Sec-WebSocket-Protocol: {protocol}",
    ]
    async with connected(path=str(stand.socket)) as (reader, writer):
        await send(writer, ["\r\n".join([*head, "", ""]).encode()])
        answer = await reader.readuntil(b"\r\n\r\n")
        assert status_of(answer) == 101, answer
        await send(writer, [piece.replace(PORT, port) for piece in pieces])
        for _ in MessageReader().feed(await rest(reader, quiet_s=0.05)):
            pass


async def start_relay(stand: Stand) -> None:
    """It stays, and its agent does."""
    async with stand.client() as client:
        await run(client, "true")


@asynccontextmanager
async def commands_in_a_job() -> AsyncIterator[Play]:
    async with standing() as stand:
        job_id = await running(stand)
        user: dict[str, Any] = (
            {"user": ALICE_UID, "group": ALICE_UID, "extra_groups": []} if os.geteuid() == 0 else {}
        )
        environment = {"SLURM_JOB_ID": job_id, "PATH": "/usr/bin:/bin"}
        script = await asyncio.create_subprocess_exec("/usr/bin/sleep", "86400", env=environment, **user)
        try:
            await start_relay(stand)
            yield lambda pieces: converse(stand, "exec", EXEC_PROTOCOL, pieces)
        finally:
            script.kill()
            await script.wait()


@asynccontextmanager
async def ports_of_a_job() -> AsyncIterator[Play]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while received := await reader.read(65536):
                writer.write(received)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async with standing() as stand, await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        await running(stand)
        await start_relay(stand)
        port = server.sockets[0].getsockname()[1]
        yield lambda pieces: converse(stand, "ports", PORTS_PROTOCOL, pieces, b"%d" % port)


TARGETS = (
    Target("redbox-exec", mutated(commands()), commands_in_a_job, [frame(TEXT, document(command=["cat"]))]),
    Target(
        "redbox-ports",
        sequences(PORT_MESSAGES, PORT_MESSAGES, OTHER_FRAMES),
        ports_of_a_job,
        [frame(BINARY, port_message(PortChannel.OPEN, 1, b'{"port": 55555}'))],
    ),
)
