"""Which servers listen on a port of this node, and whose they are: all users share its network."""

import os
import socket
import struct
from typing import Iterator, List, NamedTuple, Tuple

ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 # compared with, never bound to
LISTENS = 10  # the kernel's number of that state
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NETLINK_DONE = 4, 20, 3
REQUEST_DUMP = 0x301
NETLINK_HEAD = struct.Struct("=IHHII")  # length, type, flags, sequence, port
SOCKET_ID = struct.Struct("=HH16s16sIQ")  # ports, addresses, interface, cookie
KERNEL_S = 5.0
CHOSEN_FROM = range(20000, 30000)
"""Below the ports that Linux gives to clients (32768), and that Kubernetes gives to Services (30000)."""
V4_IN_V6 = "::ffff:"


class PortListener(NamedTuple):
    """Where a server listens."""

    family: int
    address: str
    uid: int
    inode: int
    """Of its socket."""


def free_port(taken: List[int]) -> int:
    """One on which nothing listens now; whether that is still so is checked when its container starts."""
    for _ in CHOSEN_FROM:
        port = CHOSEN_FROM[int.from_bytes(os.urandom(4), "big") % len(CHOSEN_FROM)]
        if port not in taken and not find_listeners(port):
            return port
    raise OSError("No port of {} to {} is free on this node.".format(CHOSEN_FROM[0], CHOSEN_FROM[-1]))


def find_listeners(port: int) -> List[PortListener]:
    if not 0 < port < 1 << 16:
        return []
    try:
        return list(ask_kernel(port))
    except OSError:  # a kernel without sock_diag
        return list(read_tables(port))


def ask_kernel(port: int) -> Iterator[PortListener]:
    """By sock_diag(7), for listeners alone.

    /proc/net/tcp takes a hundred times as long where the kernel's table of connections is large, however few
    there are.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(KERNEL_S)
        for family, size_of_address in ((socket.AF_INET, 4), (socket.AF_INET6, 16)):
            body = struct.pack("=BBHI", family, socket.IPPROTO_TCP, 0, 1 << LISTENS)
            body += struct.pack(">H", port) + bytes(SOCKET_ID.size - 2)
            size = NETLINK_HEAD.size + len(body)
            kernel.send(NETLINK_HEAD.pack(size, SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 0, 0) + body)
            for message in dumped_messages(kernel):
                (number,) = struct.unpack_from(">H", message, 4)
                uid, inode = struct.unpack_from("=II", message, 64)
                if number == port:
                    address = socket.inet_ntop(family, message[8 : 8 + size_of_address])
                    yield PortListener(family, address, uid, inode)


def dumped_messages(kernel: "socket.socket") -> Iterator[bytes]:
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


def read_tables(port: int) -> Iterator[PortListener]:
    for path, family in kernel_tables():
        try:
            with open(path) as file:
                rows = [line.split() for line in file][1:]
        except OSError:  # a kernel without IPv6
            continue
        for row in rows:
            address, _, number = row[1].partition(":")
            if int(row[3], 16) == LISTENS and int(number, 16) == port:
                shown = read_kernel_address(address, family)
                yield PortListener(family, shown, int(row[7]), int(row[9]))


def kernel_tables() -> Tuple[Tuple[str, int], ...]:
    return ("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)


def read_kernel_address(text: str, family: int) -> str:
    """The kernel writes each 32 bits of an address as a number of this machine."""
    words = [struct.pack("=I", int(text[start : start + 8], 16)) for start in range(0, len(text), 8)]
    return socket.inet_ntop(family, b"".join(words))
