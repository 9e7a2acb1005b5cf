"""Slurm's authentication socket for login pods of 24.11, whose Debian packages have no sackd.

Slurm's commands ask /run/slurm/sack.socket for a token that names the caller, or whether a token is genuine.
The kernel identifies the caller. Only this container has the key; sshd and its users have the socket.

    request: version u16, length u32 (of all but the version), rpc u32
    create:  receiver's uid u32, payload u32 + bytes      answer: token u32 + bytes, with a final NUL
    verify:  token u32 + bytes, with a final NUL          answer: 0 u32, or another number
"""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redbox_slurmpod.projected_files import version_folder
from redbox_slurmpod.sack.tokens import KeysUnusable, SackKeys, claims_of, read_keys

log = logging.getLogger(__name__)
_CREATE, _VERIFY = 64001, 64002
_CREDENTIALS = struct.Struct("iII")
_HEADER, _COUNTED = struct.Struct("!HII"), 8
_LARGEST = 1 << 20
_WITHIN_S = 10
_BACKLOG = 256


class Sack:
    """Keys are read again when they change; keys that cannot be used leave the former ones in use."""

    def __init__(self, keys: Path, cluster: str) -> None:
        self._folder = keys
        self._cluster = cluster
        self._host = socket.gethostname().partition(".")[0]
        self._keys = read_keys(keys)
        self._version = self._current_version()

    async def serve(self, listening: socket.socket) -> None:
        """Until cancelled."""
        async with await asyncio.start_unix_server(self._handle, sock=listening) as server:
            await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_WITHIN_S):
                writer.write(await self._answer(reader, writer.get_extra_info("socket")))
                await writer.drain()
        except (OSError, EOFError, struct.error, ValueError) as error:  # TimeoutError is an OSError
            log.warning("a request was refused: %s", error)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, peer: socket.socket) -> bytes:
        _, uid, gid = _CREDENTIALS.unpack(
            peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        version, length, rpc = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        if not _COUNTED <= length <= _LARGEST:
            raise ValueError(f"a request of {length} bytes")
        body = await reader.readexactly(length - _COUNTED)
        keys = self._newest_keys()
        if rpc == _CREATE:
            receiver, size = struct.unpack_from("!II", body)
            # A directory service may take long to answer.
            identity = await asyncio.to_thread(identity_of, uid, gid)
            claims = claims_of(
                cluster=self._cluster,
                version=version,
                uid=uid,
                gid=gid,
                receiver=receiver,
                payload=body[8 : 8 + size],
                host=self._host,
                identity=identity,
            )
            token = keys.sign(claims).encode() + b"\0"
            return struct.pack("!I", len(token)) + token
        if rpc == _VERIFY:
            (size,) = struct.unpack_from("!I", body)
            token = body[4 : 4 + size].rstrip(b"\0")
            return struct.pack("!I", 0 if keys.verify(token.decode("ascii"), uid) else 1)
        raise ValueError(f"an unknown request, {rpc}")

    def _newest_keys(self) -> SackKeys:
        if (version := self._current_version()) != self._version:
            self._version = version
            try:
                self._keys = read_keys(self._folder)
            except KeysUnusable as error:
                log.warning("the former keys stay in use: %s", error)
        return self._keys

    def _current_version(self) -> tuple[object, ...]:
        folder = version_folder(self._folder)
        return (folder, *(_modified(folder / name) for name in ("slurm.jwks", "slurm.key")))


def listen_at(path: Path) -> socket.socket:
    """A socket for `Sack.serve`, which all users may ask; that of the container before is replaced."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o777)
    listening.listen(_BACKLOG)
    return listening


def _modified(file: Path) -> object:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def identity_of(uid: int, gid: int) -> Mapping[str, Any]:
    """What slurmctld needs of a user that it does not have; empty for a uid without a name."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return {}
    groups = {_group_name(each): each for each in os.getgrouplist(user.pw_name, gid)}
    return {
        "name": user.pw_name,
        "gecos": user.pw_gecos,
        "dir": user.pw_dir,
        "shell": user.pw_shell,
        "groups": groups,
    }


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
