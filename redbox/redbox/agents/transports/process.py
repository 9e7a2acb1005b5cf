"""Agents that are child processes of the server: for `self` and `sudo`.

Spoken to over one socket pair, so that a server that dies, however it dies, closes their stdin. stderr is a
pipe that nobody empties: an agent writes there only why it will not run, and one that writes more waits for
itself alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Self

from redbox.agents.program.wire import MAX_PAYLOAD
from redbox.core.fd_limits import as_given

MAX_WORDS = 4096
REAP_S = (0.005, 1.0)  # how often it is asked whether it has ended: at first, and at last


class ChildProcess:
    """A started child, with an empty environment, in a session of its own away from a terminal's signals."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        preamble: bytes,
    ) -> None:
        self.preamble = preamble
        self._popen = popen
        self._reader = reader
        self._writer = writer
        self._words = ""
        self._is_closed = False

    @classmethod
    async def start(cls, argv: Sequence[str], *, preamble: bytes = b"", umask: int = -1) -> Self:
        """Start it; with the server's umask where none is given."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                popen = subprocess.Popen(  # noqa: ASYNC220 # only forks: its pipes are asyncio's, its end is polled
                    [*as_given(), *argv],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    env={},
                    cwd="/",
                    start_new_session=True,
                    umask=umask,
                )
            except OSError:
                ours.close()
                raise
        assert popen.stderr is not None  # noqa: S101 # it was asked for
        os.set_blocking(popen.stderr.fileno(), False)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_PAYLOAD)
        return cls(popen, reader, writer, preamble)

    @property
    def pid(self) -> int:
        return self._popen.pid

    async def read(self) -> bytes:
        return await self._reader.read(MAX_PAYLOAD)

    def write(self, data: bytes) -> None:
        if not self._is_closed:
            self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(OSError):
                self._writer.write_eof()

    def kill(self) -> None:
        """End it, or where it is another user's, cut it off: it leaves when it reads on."""
        self._is_closed = True
        self._writer.transport.abort()
        with contextlib.suppress(PermissionError):
            self._popen.kill()

    async def wait(self) -> int:
        # Polled, because no child watcher of asyncio works on every event loop and old kernels have no pidfd.
        pause, longest = REAP_S
        while (status := self._popen.poll()) is None:
            await asyncio.sleep(pause)
            pause = min(longest, pause * 2)
        self._is_closed = True
        self._writer.transport.abort()
        self.words()
        return status

    def words(self) -> str:
        """Return what it wrote to stderr; after its end, for ever."""
        stderr = self._popen.stderr
        if stderr is not None and not stderr.closed:
            self._words += (stderr.read(MAX_WORDS - len(self._words)) or b"").decode(errors="replace")
            if self._popen.returncode is not None:
                stderr.close()
        return self._words.strip()
