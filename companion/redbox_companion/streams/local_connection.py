"""One TCP connection of a client to a port of the pod, which a forward carries to the job.

Each direction holds a bounded number of bytes and has credit at red-box: a peer that stalls holds back its
own connection only. The end of one direction is passed on by itself. A connection that breaks is reset, so
that no client takes half of an answer for the whole.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from typing import TYPE_CHECKING

from redbox_companion.streams.frames import ProtocolError
from redbox_companion.streams.job_channel import AGAIN, END, PIECE, send_held
from redbox_shared.credit import ReceiveCredit
from redbox_shared.socket_options import CLOSE_IN_ORDER, KEEP_ALIVE, RESET_ON_CLOSE
from redbox_shared.wire import MESSAGE_COST, PORTS_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

TO_JOB, FROM_JOB, CREDIT = 0, 1, 7
NO_MORE_TO_JOB, GIVEN_UP = b"\0", b"\1"
NUMBER = struct.Struct(">I")


class LocalConnection:
    """Copies between its client and messages of the forward."""

    def __init__(self, client: socket.socket, send: Callable[[int, bytes], None]) -> None:
        """`send` takes a channel and its content; it holds what cannot be sent yet."""
        client.settimeout(0.0)
        for option in (*KEEP_ALIVE, RESET_ON_CLOSE):  # until the job has ended it: this process may be killed
            client.setsockopt(*option)
        self.socket = client
        self._send = send
        self._credit = PORTS_WINDOW
        self._to_client = bytearray()
        self._received = ReceiveCredit(PORTS_WINDOW)
        self._client_ended = False
        self._job_ended = False
        self._is_over = False  # red-box has ended it

    @property
    def is_done(self) -> bool:
        return self._is_over and not self._to_client

    def events(self, *, may_send: bool) -> int:
        """What to poll the socket for; until the job's end for a reset, too, where neither way goes on."""
        reads = may_send and not self._client_ended and not self._is_over and self._credit > MESSAGE_COST
        writes, resets = bool(self._to_client), not self._job_ended
        return select.POLLIN * reads | select.POLLOUT * writes | select.POLLERR * resets

    def serve(self, events: int) -> None:
        """Do what can be done now; OSError if the client has broken it."""
        if events & select.POLLERR:
            raise ConnectionResetError("the client has reset the connection")
        if events & (select.POLLIN | select.POLLHUP) and not self._client_ended:
            self._read()
        self._write()

    def _read(self) -> None:
        if self._credit <= MESSAGE_COST or self._is_over:
            return
        with contextlib.suppress(*AGAIN):
            data = self.socket.recv(min(PIECE, self._credit - MESSAGE_COST))
            self._client_ended = not data
            if data:
                self._credit -= MESSAGE_COST + len(data)
                self._send(TO_JOB, data)
            else:
                self._send(END, NO_MORE_TO_JOB)

    def _write(self, consumed: int = 0) -> None:
        """Pass on what the client takes; `consumed` is credit beside these bytes."""
        held = len(self._to_client)
        send_held(self.socket.send, self._to_client)
        granted = self._received.consume(consumed + held - len(self._to_client))
        if granted and not self._is_over:
            self._send(CREDIT, NUMBER.pack(granted))
        if self._job_ended and not self._to_client:
            with contextlib.suppress(OSError):  # the client may have gone
                self.socket.setsockopt(*CLOSE_IN_ORDER)
                self.socket.shutdown(socket.SHUT_WR)

    # -- of the job

    def take(self, channel: int, data: bytes) -> None:
        """A message of this connection; OSError if its client has gone."""
        consumed = 0
        if channel == FROM_JOB:
            if not self._received.receive(MESSAGE_COST + len(data)):
                raise ProtocolError("red-box sends more than the credit of a connection")
            self._to_client += data
            consumed = MESSAGE_COST
        elif channel == CREDIT and len(data) == NUMBER.size:
            self._credit += NUMBER.unpack(data)[0]
        elif channel == END:
            self._job_ended = True
        self._write(consumed)

    def end(self) -> None:
        """Red-box has ended it in order: what it sent last is still written."""
        self._is_over = self._job_ended = True
        self._write()


def reset(client: socket.socket) -> None:
    """Close it so that its client does not take what it got for the whole."""
    with contextlib.suppress(OSError):
        client.setsockopt(*RESET_ON_CLOSE)
    client.close()
