"""Connections to servers of the job on the relay's node."""

import errno
import os
import selectors
import socket
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, Optional, Tuple

from redbox.node.program.job_processes import is_socket_of_job, own_job
from redbox.node.program.listeners import ANY_ADDRESS, find_listeners
from redbox.relay.program.frames import CLOSE, STDOUT, report_bytes
from redbox.relay.program.streams import Interest, Send, SocketStream

CONNECT_S = 10.0
RESET = "the server has reset the connection"


class PortStream(SocketStream):
    """A connection to a server of the job on this node."""

    def __init__(self, number: int, send: Send, document: Dict[str, Any]) -> None:
        super().__init__(number, send)
        report_bytes({})  # json is imported before connections may have taken all descriptors
        self._deadline = time.monotonic() + CONNECT_S
        self._connected = False
        self._is_probe = bool(document.get("probe"))
        self._readable = self._writable = True
        self._was_reset = False
        port = int(document["port"])
        where = find_job_listener(port, own_job(document["job"]))
        if where is None:
            message = f"nothing of the job listens on port {port} of node {os.uname()[1]}"
            self.finish({"reason": "PortRefused", "message": message})
            return
        family, address = where
        self._name = f"{port} of node {os.uname()[1]}"
        self._socket = opened = socket.socket(family, socket.SOCK_STREAM)
        opened.settimeout(0)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = opened.connect_ex((address, port))
        if code not in (0, errno.EINPROGRESS):
            self._fail(code)

    def is_timed(self) -> bool:
        return not self._connected

    def interests(self) -> Iterator[Interest]:
        if self._socket is None:
            return
        events = selectors.EVENT_WRITE if self._input or not self._connected else 0
        if self._connected and self._readable and self.may_read():
            events |= selectors.EVENT_READ
        if events:
            yield self._socket.fileno(), events

    def ready(self, descriptor: int, events: int) -> None:
        if self._socket is None:
            return
        if not self._connected:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._fail(code)
                return
            self._connected = True
            if self._is_probe:
                self._end({"code": 0})
                return
        if events & selectors.EVENT_WRITE and self._input and not self._write(descriptor):
            self._writable = False  # what the server has sent before is still to be read
        if events & selectors.EVENT_READ and not self._read(descriptor, STDOUT):
            self._readable = False
            if self._was_reset:
                self._end({"reason": "ConnectionReset", "message": f"port {self._name}: {RESET}"})
            else:
                self._send_frame(CLOSE, self.number, bytes([STDOUT]))

    def _failed(self, error: OSError) -> None:
        """A server that closes with input unread, or dies, resets: what it sent may be half of an answer."""
        self._was_reset = self._was_reset or error.errno == errno.ECONNRESET

    def tick(self) -> None:
        if self._socket is None:
            return
        if not self._connected and time.monotonic() > self._deadline:
            self._fail(errno.ETIMEDOUT)
            return
        if self._input_closed and self._connected and not self._input:
            self._input_closed = False
            with suppress(OSError):  # its server has gone: the end of what it sent says so
                self._socket.shutdown(socket.SHUT_WR)
            self._writable = False
        if not self._readable and not self._writable:
            self._end({"code": 0})

    def _fail(self, code: int) -> None:
        self._end({"reason": "PortRefused", "message": f"port {self._name}: {os.strerror(code)}"})

    def _end(self, document: Dict[str, Any]) -> None:
        self.finish(document)
        self._release()


def find_job_listener(port: int, job: str) -> Optional[Tuple[int, str]]:
    """Where to connect to: a server of the job, on 127.0.0.1 or an address of the node's own."""
    listeners = find_listeners(port)
    found = [
        (listener.family, listener.address)
        for listener in listeners
        if listener.uid == os.getuid() and is_socket_of_job(listener.inode, job)
    ]
    for family, address in found:
        if address in ANY_ADDRESS:
            is_v4 = family == socket.AF_INET or not (
                has_v6_loopback() or any(listener.family == socket.AF_INET for listener in listeners)
            )
            return (socket.AF_INET, "127.0.0.1") if is_v4 else (socket.AF_INET6, "::1")
    found.sort(key=lambda pair: pair[1] != "127.0.0.1")
    return found[0] if found else None


def has_v6_loopback() -> bool:
    """Where a node has none, a server on all addresses of both families is reached by the other one."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True
