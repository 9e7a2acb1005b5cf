"""One TCP connection, carried by one WebSocket of red-box (`v1.ports.redbox.dev`).

Each direction holds a bounded number of bytes, and stops reading while they wait: a peer that stalls holds
back its own connection only. The end of one direction is passed on by itself. A connection that breaks is
reset, so that no client takes half of an answer for the whole.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

from redbox_companion.streams import frames

if TYPE_CHECKING:
    from redbox_companion.redbox_client import UpgradedConnection

TO_JOB, FROM_JOB, STATUS, END = 0, 1, 3, 255
MOST_HELD = 256 << 10
PIECE = 32 << 10
RESET = struct.pack("ii", 1, 0)
AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class PortClosed(Exception):
    """Red-box ended the connection: the reason and the message of its Status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message or reason)
        self.reason = reason


class Bridge:
    """Copies both ways until both have ended."""

    def __init__(self, local: socket.socket, remote: UpgradedConnection) -> None:
        self._local = local
        self._remote = remote.socket
        self._reader = frames.MessageReader(MOST_HELD)
        self._first = remote.received
        self._to_local, self._to_remote = bytearray(), bytearray()
        self._local_ended = False  # no more bytes from the local peer
        self._job_ended = False  # no more bytes from the job
        self._passed_on = False  # the job's end, to the local peer
        self._over = False

    def run(self) -> None:
        """Raise `PortClosed` with the reason that red-box gives, OSError or ProtocolError where it broke."""
        self._local.settimeout(0.0)
        self._remote.settimeout(0.0)
        whole = False
        try:
            self._receive(self._first)
            while not self._is_done():
                self._step()
            whole = True
        finally:
            self._close(whole=whole)

    def _is_done(self) -> bool:
        if self._to_local:
            return False
        return self._over or (self._job_ended and self._local_ended and not self._to_remote)

    def _step(self) -> None:
        reads_remote = not self._over and len(self._to_local) < MOST_HELD
        reads_local = not self._local_ended and not self._over and len(self._to_remote) < MOST_HELD
        if reads_remote and self._remote.pending():
            self._read_remote()
        poll = select.poll()
        for peer, reads, held in (
            (self._local, reads_local, self._to_local),
            (self._remote, reads_remote, self._to_remote),
        ):
            if events := select.POLLIN * bool(reads) | select.POLLOUT * bool(held):
                poll.register(peer, events)
        waits = 0 if reads_remote and self._remote.pending() else None
        ready = dict(poll.poll(waits))
        if events := ready.get(self._local.fileno(), 0):
            self._serve_local(events, reads=reads_local)
        if events := ready.get(self._remote.fileno(), 0):
            self._send(self._remote, self._to_remote)
            if reads_remote and events & ~select.POLLOUT:
                self._read_remote()

    def _serve_local(self, events: int, *, reads: bool) -> None:
        self._send(self._local, self._to_local)
        if self._job_ended and not self._to_local and not self._passed_on:
            self._pass_on_end()
        if not reads or not events & ~select.POLLOUT:
            return
        with contextlib.suppress(*AGAIN):
            data = self._local.recv(PIECE)
            self._local_ended = not data
            self._say(bytes((TO_JOB,)) + data if data else bytes((END, TO_JOB)))

    def _read_remote(self) -> None:
        with contextlib.suppress(*AGAIN):
            data = self._remote.recv(PIECE)
            if not data and not self._over:
                raise ConnectionResetError("red-box closed the connection without a status")
            self._receive(data)

    def _receive(self, data: bytes) -> None:
        for kind, message in self._reader.feed(data):
            if kind == frames.PING:
                self._to_remote += frames.encode(frames.PONG, message)
            elif kind == frames.CLOSE:
                if not self._over and not self._job_ended:
                    raise ConnectionResetError("red-box closed the connection without a status")
                self._over = True
            elif kind == frames.BINARY and message:
                self._take(message[0], message[1:])

    def _take(self, channel: int, data: bytes) -> None:
        if channel == FROM_JOB:
            self._to_local += data
        elif channel == END and data == bytes((FROM_JOB,)):
            self._job_ended = True
            if not self._to_local:
                self._pass_on_end()
        elif channel == STATUS:
            self._over = self._job_ended = True
            if reason := failure_of(data):
                raise reason

    def _pass_on_end(self) -> None:
        self._passed_on = True
        with contextlib.suppress(OSError):  # the local peer may have gone
            self._local.shutdown(socket.SHUT_WR)

    def _say(self, message: bytes) -> None:
        self._to_remote += frames.encode(frames.BINARY, message)

    @staticmethod
    def _send(peer: socket.socket, held: bytearray) -> None:
        with contextlib.suppress(*AGAIN):
            while held:
                sent = peer.send(bytes(held[:PIECE]))
                del held[:sent]

    def _close(self, *, whole: bool) -> None:
        with contextlib.suppress(OSError):
            if whole:
                self._remote.send(frames.encode(frames.CLOSE, (1000).to_bytes(2, "big")))
            else:
                self._local.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._remote.close()
        self._local.close()


def failure_of(raw: bytes) -> PortClosed | None:
    """The failure that red-box reports at the end of a connection; None for Success."""
    try:
        status: Any = json.loads(raw)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict):
        return PortClosed(
            "Unreadable", "red-box ended the connection with a status that is not a JSON object"
        )
    if status.get("status") == "Success":
        return None
    return PortClosed(str(status.get("reason", "")), str(status.get("message", "")))
