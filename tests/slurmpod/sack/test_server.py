"""The authentication socket, by the bytes that Slurm's commands exchange with it."""

import asyncio
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import jwt
import pytest

from redbox_slurmpod.sack.server import Sack, identity_of, listen_at
from tests.slurmpod.sack.factories import ANY_UID, OTHER, SECRET, entry

CREATE, VERIFY = 64001, 64002


class Socket:
    def __init__(self, path: Path) -> None:
        self.path = path

    async def ask(self, rpc: int, body: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        with suppress(ConnectionError):
            writer.write(struct.pack("!HII", 10752, 8 + len(body), rpc) + body)
            answer = await reader.read()
            writer.close()
            return answer
        return b""

    async def token(self, receiver: int = ANY_UID, payload: bytes = b"") -> str:
        answer = await self.ask(CREATE, struct.pack("!II", receiver, len(payload)) + payload)
        assert struct.unpack("!I", answer[:4]) == (len(answer) - 4,)
        assert answer.endswith(b"\0")
        return answer[4:-1].decode()

    async def verified(self, token: str) -> bool:
        raw = token.encode() + b"\0"
        return await self.ask(VERIFY, struct.pack("!I", len(raw)) + raw) == struct.pack("!I", 0)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Socket]:
    path = folder / "run" / "sack.socket"
    listening = listen_at(path)
    task = asyncio.create_task(Sack(folder, "lab").serve(listening))
    try:
        yield Socket(path)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def sack(tmp_path: Path) -> AsyncIterator[Socket]:
    (tmp_path / "slurm.key").write_bytes(SECRET)
    async with serving(tmp_path) as socket:
        yield socket


async def test_a_token_names_the_caller_as_the_kernel_knows_it(sack: Socket) -> None:
    claims = jwt.decode(await sack.token(payload=b"data"), SECRET, algorithms=["HS256"])
    assert (claims["uid"], claims["gid"], claims["ver"]) == (os.getuid(), os.getgid(), 10752)
    assert claims["cluster"] == "lab"
    assert claims["id"]["name"] == identity_of(os.getuid(), os.getgid())["name"]


async def test_its_own_tokens_are_genuine_and_others_are_not(sack: Socket) -> None:
    assert await sack.verified(await sack.token())
    assert await sack.verified(await sack.token(receiver=os.getuid()))
    assert not await sack.verified(await sack.token(receiver=os.getuid() + 1))
    assert not await sack.verified("a.b.c")


async def test_new_keys_are_used_without_a_restart_and_unusable_ones_are_not(
    sack: Socket, tmp_path: Path
) -> None:
    before = await sack.token()
    keys = {"keys": [entry("k1", SECRET), entry("k2", OTHER, use="default")]}
    (tmp_path / "slurm.jwks").write_text(json.dumps(keys))
    assert jwt.get_unverified_header(await sack.token())["kid"] == "k2"
    assert not await sack.verified(before)  # without kid it is one of the default key
    (tmp_path / "slurm.jwks").write_text("half a fi")
    assert jwt.get_unverified_header(await sack.token())["kid"] == "k2"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"",
        b"\0" * 9,
        struct.pack("!HII", 1, 4, CREATE),
        struct.pack("!HII", 1, 0xFFFFFFFF, CREATE),
        struct.pack("!HII", 1, 8, CREATE),
        struct.pack("!HII", 1, 8, 7),
        struct.pack("!HIII", 1, 12, VERIFY, 0xFFFFFFFF),
        struct.pack("!HIII", 1, 13, VERIFY, 1) + b"\xff",
    ],
)
async def test_requests_that_are_none_disturb_nobody(sack: Socket, request_bytes: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(str(sack.path))
    writer.write(request_bytes)
    writer.write_eof()
    assert await reader.read() in (b"", struct.pack("!I", 1))
    writer.close()
    assert await sack.verified(await sack.token())


async def test_the_socket_of_a_container_that_has_ended_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "slurm.key").write_bytes(SECRET)
    for _ in range(2):
        async with serving(tmp_path) as socket:
            assert await socket.token()
            leftover = socket.path.exists()
        assert leftover


def test_a_user_without_a_name_has_no_identity() -> None:
    assert identity_of(3_999_999, 3_999_999) == {}
