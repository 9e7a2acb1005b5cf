"""Connections to servers of the job's user on the relay's node."""

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
from typing import Any, Dict, Iterator, Optional, Tuple

from redbox.relay.program.frames import CLOSE, STDOUT
from redbox.relay.program.streams import RelayStream, Send, Wish

CONNECT_S = 10.0
LISTEN = "0A"
FAMILIES = (socket.AF_INET, socket.AF_INET6)
ADDRESS_BYTES = {socket.AF_INET: 4, socket.AF_INET6: 16}
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NETLINK_DONE = 4, 20, 3
REQUEST_DUMP = 0x301
NETLINK_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence, port
SOCKET_ID = struct.Struct("=HH16s16sIQ")  # ports, addresses, interface, cookie
KERNEL_S = 5.0
TABLES = (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6))
ANY = ("0.0.0.0", "::")  # noqa: S104 # what a listener may have, not where we listen


class PortStream(RelayStream):
    """A connection to a server of this user on this node."""

    def __init__(self, number: int, send: Send, document: Dict[str, Any]) -> None:
        super().__init__(number, send)
        self._deadline = time.monotonic() + CONNECT_S
        self._connected = False
        self._is_look = bool(document.get("look"))
        self._readable = self._writable = True
        self._socket: Optional[socket.socket] = None
        port = int(document["port"])
        where = find_own_listener(port)
        if where is None:
            message = f"nothing of the job's user listens on port {port} of node {os.uname()[1]}"
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

    def wants(self) -> Iterator[Wish]:
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
            if self._is_look:
                self._end({"code": 0})
                return
        if events & selectors.EVENT_WRITE and self._input and not self._write(descriptor):
            self._end({"code": 0})
            return
        if events & selectors.EVENT_READ and not self._read(descriptor, STDOUT):
            self._readable = False
            self._send_frame(CLOSE, self.number, bytes([STDOUT]))

    def tick(self) -> None:
        if self._socket is None:
            return
        if not self._connected and time.monotonic() > self._deadline:
            self._fail(errno.ETIMEDOUT)
            return
        if self._input_closed and self._connected and not self._input:
            self._input_closed = False
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self._readable = False
            self._writable = False
        if not self._readable and not self._writable:
            self._end({"code": 0})

    def kill(self) -> None:
        super().kill()
        self._release()

    def _fail(self, code: int) -> None:
        self._end({"reason": "PortRefused", "message": f"port {self._name}: {os.strerror(code)}"})

    def _end(self, document: Dict[str, Any]) -> None:
        self.finish(document)
        self._release()

    def _release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._input.clear()


def find_own_listener(port: int) -> Optional[Tuple[int, str]]:
    """Where to connect to: a listener of this user's, on 127.0.0.1 or an address of the node's own."""
    if not 0 < port < 1 << 16:
        return None
    try:
        found = list(ask_kernel(port))
    except OSError:  # a kernel without sock_diag
        found = list(read_tables(port))
    for kind, address in found:
        if address in ANY:
            return kind, "127.0.0.1" if kind == socket.AF_INET else "::1"
    found.sort(key=lambda pair: pair[1] != "127.0.0.1")
    return found[0] if found else None


def ask_kernel(port: int) -> Iterator[Tuple[int, str]]:
    """By sock_diag(7), for listeners alone.

    /proc/net/tcp takes ten times as long where the kernel's table of connections is large, however few
    there are.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(KERNEL_S)
        for family in FAMILIES:
            body = struct.pack("=BBHI", family, socket.IPPROTO_TCP, 0, 1 << int(LISTEN, 16))
            body += struct.pack(">H", port) + bytes(SOCKET_ID.size - 2)
            size = NETLINK_HEAD.size + len(body)
            kernel.send(NETLINK_HEAD.pack(size, SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 0, 0) + body)
            for message in dumped(kernel):
                address, uid = (
                    message[8 : 8 + ADDRESS_BYTES[family]],
                    struct.unpack_from("=I", message, 64)[0],
                )
                if struct.unpack_from(">H", message, 4)[0] == port and uid == os.getuid():
                    yield family, socket.inet_ntop(family, address)


def dumped(kernel: socket.socket) -> Iterator[bytes]:
    """The messages of one answer; OSError if the kernel refuses."""
    while True:
        data = kernel.recv(1 << 16)
        while len(data) >= NETLINK_HEAD.size:
            size, kind, _, _, _ = NETLINK_HEAD.unpack_from(data)
            if kind == NETLINK_DONE:
                return
            if kind != SOCK_DIAG_BY_FAMILY or size < NETLINK_HEAD.size:
                raise OSError("sock_diag is refused")
            yield data[NETLINK_HEAD.size : size]
            data = data[(size + 3) & ~3 :]


def read_tables(port: int) -> Iterator[Tuple[int, str]]:
    for path, family in TABLES:
        with contextlib.suppress(OSError), open(path) as file:
            for row in [line.split() for line in file][1:]:
                address, _, number = row[1].partition(":")
                if row[3] == LISTEN and int(number, 16) == port and int(row[7]) == os.getuid():
                    yield family, read_address(address, family)


def read_address(text: str, family: int) -> str:
    """The kernel writes each 32 bits of an address as a number of this machine."""
    words = [struct.pack("=I", int(text[start : start + 8], 16)) for start in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(words))
