"""Agents that are child processes of the server: for `self` and `sudo`.

They are connected by one socket pair, so that their stdin closes however the server dies. stderr is a pipe
that is read only at the end: an agent writes there just the reason for a refusal, and one that writes more
blocks itself alone.

A child that its user has stopped (SIGSTOP) sees its stdin end only when it is continued, so a closed one gets
SIGCONT until it has ended. sudo stops itself with its command, and passes SIGCONT on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Self

from redbox.agents.program.wire import MAX_PAYLOAD
from redbox.agents.transports.fd_limits import as_given
from redbox_shared.backoff import Backoff

MAX_STDERR = 4096
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
"""Debian unstable's sudo (1.9.17p2, glibc 2.43) crashes where it is empty. Agents clear theirs at once."""
REAP_BACKOFF = Backoff(0.005, 1.0, jitter=0.0)  # between polls for the end


class ChildProcess:
    """A started child, in an environment and a session of its own, away from a terminal's signals."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        preamble: bytes,
        kill_signal: signal.Signals,
    ) -> None:
        self.preamble = preamble
        self._kill_signal = kill_signal
        self._popen = popen
        self._reader = reader
        self._writer = writer
        self._stderr = ""
        self._is_closed = False

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        preamble: bytes = b"",
        umask: int = -1,
        kill_signal: signal.Signals = signal.SIGKILL,
    ) -> Self:
        """Start it, by default with the server's umask, and with SIGKILL as the signal to kill it."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                popen = subprocess.Popen(  # noqa: ASYNC220 # only forks: asyncio has its pipes, its end is polled
                    [*as_given(), *argv],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=subprocess.PIPE,
                    env=ENVIRONMENT,
                    cwd="/",
                    start_new_session=True,
                    umask=umask,
                )
            except OSError:
                ours.close()
                raise
        assert popen.stderr is not None  # noqa: S101 # PIPE, for the type checker
        os.set_blocking(popen.stderr.fileno(), False)
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_PAYLOAD)
        return cls(popen, reader, writer, preamble, kill_signal)

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

    def abandon(self) -> None:
        self.close()
        self._writer.transport.abort()

    def kill(self) -> None:
        """Kill it; a process that is another user's alone gets end of file instead, and exits."""
        self._is_closed = True
        self._writer.transport.abort()
        self._signal(self._kill_signal)
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(PermissionError):
            self._popen.send_signal(number)

    async def wait(self) -> int:
        # Polled, because no child watcher of asyncio works on every event loop and old kernels have no pidfd.
        polls = 0
        while (status := self._popen.poll()) is None:
            polls += 1
            if self._is_closed:
                self._signal(signal.SIGCONT)
            await asyncio.sleep(REAP_BACKOFF.pause_s(polls))
        self._is_closed = True
        self._writer.transport.abort()
        self.stderr_text()
        return status

    def stderr_text(self) -> str:
        """Return the beginning of its stderr, after its end too."""
        stderr = self._popen.stderr
        if stderr is not None and not stderr.closed:
            self._stderr += (stderr.read(MAX_STDERR - len(self._stderr)) or b"").decode(errors="replace")
            if self._popen.returncode is not None:
                stderr.close()
        return self._stderr.strip()
