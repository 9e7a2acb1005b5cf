"""Whose a loopback connection is, by the kernel's table of sockets: a login node has many users."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from redbox.node.program.listeners import kernel_tables, read_kernel_address

Address = tuple[str, int]


def is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def uid_of_peer(peer: Address, own: Address) -> int | None:
    """The user of the socket that is connected from `peer` to `own`; None if there is no such socket."""
    for path, family in kernel_tables():
        try:
            rows = Path(path).read_text().splitlines()[1:]
        except FileNotFoundError:  # a kernel without IPv6
            continue
        for row in rows:
            _, here, there, *more = row.split()
            if _is(peer, here, family) and _is(own, there, family):
                return int(more[4])
    return None


def _is(address: Address, text: str, family: int) -> bool:
    host, _, port = text.partition(":")
    return int(port, 16) == address[1] and _plain(read_kernel_address(host, family)) == _plain(address[0])


def _plain(address: str) -> str:
    """Of a socket of IPv6 that is connected to 127.0.0.1, as those of Java are, the address of IPv4."""
    parsed = ipaddress.ip_address(address)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)
