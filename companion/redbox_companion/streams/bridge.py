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
import struct
from typing import TYPE_CHECKING, Any

from redbox_companion.streams.job_channel import AGAIN, END, MOST_HELD, PIECE, STATUS, JobChannel, send_held

if TYPE_CHECKING:
    from redbox_companion.redbox_client import UpgradedConnection

TO_JOB, FROM_JOB = 0, 1
RESET = struct.pack("ii", 1, 0)


class RemoteEnded(Exception):
    """Red-box ended it: the reason and the message of its Status, and the exit code if a command had one."""

    def __init__(self, reason: str, message: str, exit_code: int | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason
        self.exit_code = exit_code


class Bridge:
    """Copies both ways until both have ended."""

    def __init__(self, local: socket.socket, remote: UpgradedConnection) -> None:
        self._local = local
        self._remote = JobChannel(remote)
        self._to_local = bytearray()
        self._local_ended = False  # no more bytes from the local peer
        self._job_ended = False  # no more bytes from the job
        self._passed_on = False  # the job's end, to the local peer
        self._over = False

    def run(self) -> None:
        """Raise `RemoteEnded` with red-box's reason, OSError or ProtocolError where it broke."""
        self._local.settimeout(0.0)
        whole = False
        try:
            while not self._is_done():
                self._step()
            whole = True
        finally:
            self._remote.close(whole=whole)
            self._close_local(whole=whole)

    def _is_done(self) -> bool:
        if self._to_local:
            return False
        return self._over or (self._job_ended and self._local_ended and not self._remote.held)

    def _step(self) -> None:
        reads_remote = not self._over and len(self._to_local) < MOST_HELD
        reads_local = not self._local_ended and not self._over and self._remote.has_room
        poll = select.poll()
        local_events = select.POLLIN * bool(reads_local) | select.POLLOUT * bool(self._to_local)
        remote_events = self._remote.events(reads=reads_remote)
        for peer, events in ((self._local, local_events), (self._remote.socket, remote_events)):
            if events:
                poll.register(peer, events)
        has_unread = reads_remote and self._remote.has_unread
        ready = self._remote.wait(poll, has_unread=has_unread)
        if events := ready.get(self._local.fileno(), 0):
            self._serve_local(events, reads=reads_local)
        events = ready.get(self._remote.socket.fileno(), 0)
        self._remote.flush()
        if has_unread or (reads_remote and events & ~select.POLLOUT):
            self._read_remote()

    def _serve_local(self, events: int, *, reads: bool) -> None:
        send_held(self._local.send, self._to_local)
        if self._job_ended and not self._to_local and not self._passed_on:
            self._pass_on_end()
        if not reads or not events & ~select.POLLOUT:
            return
        with contextlib.suppress(*AGAIN):
            data = self._local.recv(PIECE)
            self._local_ended = not data
            self._remote.send(*((TO_JOB, data) if data else (END, bytes((TO_JOB,)))))

    def _read_remote(self) -> None:
        for channel, data in self._remote.read():
            self._take(channel, data)
        if self._remote.is_closed:
            if not self._over and not self._job_ended:
                raise ConnectionResetError("red-box closed the connection without a status")
            self._over = True

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

    def _close_local(self, *, whole: bool) -> None:
        with contextlib.suppress(OSError):
            if not whole:
                self._local.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._local.close()


def failure_of(raw: bytes) -> RemoteEnded | None:
    """The failure that red-box reports at the end of a connection; None for Success."""
    try:
        status: Any = json.loads(raw)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict):
        return RemoteEnded(
            "Unreadable", "red-box ended the connection with a status that is not a JSON object"
        )
    if status.get("status") == "Success":
        return None
    return RemoteEnded(str(status.get("reason", "")), str(status.get("message", "")), exit_code_of(status))


def exit_code_of(status: dict[str, Any]) -> int | None:
    try:
        causes = status["details"]["causes"]
        return next(int(cause["message"]) for cause in causes if cause["reason"] == "ExitCode")
    except (KeyError, TypeError, ValueError, StopIteration):
        return None
