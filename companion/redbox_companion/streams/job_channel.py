"""The remote end of a session or forward: red-box's WebSocket as messages of channels, never waiting."""

from __future__ import annotations

import contextlib
import json
import select
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from redbox_companion.streams import frames
from redbox_shared.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redbox_companion.redbox_client import UpgradedConnection

STATUS, RESIZE, END = 3, 4, 255
RENEW_S = 60.0
"""Between checks for a newer token; the kubelet renews it minutes before it expires."""
RENEW_BACKOFF = Backoff(10.0, 10.0)
"""After a renewal that failed."""
MOST_HELD = 256 << 10
PIECE = 32 << 10
AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class JobChannel:
    """Both directions hold a bounded number of bytes; who reads less is sent less."""

    def __init__(self, remote: UpgradedConnection) -> None:
        self.socket = remote.socket
        self.socket.settimeout(0.0)
        self.held = bytearray()  # to red-box
        self.is_closed = False
        self._takes_more = True
        self._reader = frames.MessageReader()
        self._first = remote.received
        self._token = remote.token
        self._request_renewal = remote.renew
        self._renewing: threading.Thread | None = None
        self._is_over = threading.Event()
        self._sent = remote.token()
        self._renew_at = time.monotonic() + RENEW_S

    @property
    def has_room(self) -> bool:
        return len(self.held) < MOST_HELD

    @property
    def has_unread(self) -> bool:
        """Whether bytes wait that no poll of the socket shows."""
        return bool(self._first) or bool(self.socket.pending())

    def events(self, *, reads: bool) -> int:
        """What to poll the socket for."""
        return select.POLLIN * bool(reads and not self.is_closed) | select.POLLOUT * bool(self.held)

    def send(self, channel: int, data: bytes) -> None:
        self._hold(frames.BINARY, bytes((channel,)) + data)

    def _hold(self, kind: int, data: bytes) -> None:
        if self._takes_more:
            self.held += frames.encode(kind, data)

    def wait(self, poll: select.poll, *, has_unread: bool, longest_s: float = RENEW_S) -> dict[int, int]:
        """What is ready; returns without anything, too, and has red-box go on by a newer token."""
        pause_s = 0.0 if has_unread else min(longest_s, max(0.0, self._renew_at - time.monotonic()))
        ready = dict(poll.poll(pause_s * 1000))
        if time.monotonic() >= self._renew_at:
            self._renew()
        return ready

    def _renew(self) -> None:
        self._renew_at = time.monotonic() + RENEW_S
        with contextlib.suppress(OSError, RuntimeError):  # there are no more threads: the next may fit
            token = self._token()
            if token != self._sent and (self._renewing is None or not self._renewing.is_alive()):
                self._renewing = threading.Thread(target=self._renew_by, args=(token,), daemon=True)
                self._renewing.start()

    def _renew_by(self, token: str) -> None:
        """In a thread: what the session carries does not wait for red-box's answer."""
        while not self._is_over.is_set():
            if self._request_renewal():
                self._sent = token
                return
            self._is_over.wait(RENEW_BACKOFF.pause_s(1))

    def send_text(self, document: dict[str, Any]) -> None:
        self._hold(frames.TEXT, json.dumps(document).encode())

    def flush(self) -> None:
        """What can be sent now. A red-box that takes nothing more has said why: that is still to be read."""
        try:
            send_held(self.socket.send, self.held)
        except OSError:
            self._takes_more = False
            self.held.clear()

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Channel and content of each message that has come; the end of the connection is `is_closed`."""
        data, self._first = self._first, b""
        if not data:
            try:
                data = self.socket.recv(PIECE)
            except AGAIN:
                return
            self.is_closed = not data
        for kind, message in self._reader.feed(data):
            if kind == frames.PING:
                self._hold(frames.PONG, message)
            elif kind == frames.CLOSE:
                self.is_closed = True
            elif kind == frames.BINARY and message:
                yield message[0], message[1:]

    def close(self, *, whole: bool) -> None:
        self._is_over.set()
        with contextlib.suppress(OSError):
            if whole:
                self.socket.send(frames.encode(frames.CLOSE, (1000).to_bytes(2, "big")))
        self.socket.close()


def send_held(send: Callable[[bytes], int], held: bytearray) -> None:
    """As much as is taken now."""
    with contextlib.suppress(*AGAIN):
        while held:
            sent = send(bytes(held[:PIECE]))
            del held[:sent]
