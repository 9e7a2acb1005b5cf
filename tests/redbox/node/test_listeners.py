"""Which servers a connection may reach: those of the job's user, by what the kernel says of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest

from redbox.node.program import listeners
from redbox.relay.program.ports import find_own_listener

Found = Iterator[listeners.PortListener]
WAYS = [listeners.ask_kernel, listeners.read_tables]


def server(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_server_of_this_user_is_found_where_it_listens(way: Callable[[int], Found], address: str) -> None:
    with server(address) as listener:
        port = listener.getsockname()[1]
        assert list(way(port)) == [(listener.family, address, os.getuid())]
        family, found = find_own_listener(port) or (0, "")
        with socket.socket(family) as client:
            client.connect((found, port))
    assert list(way(port)) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_is_no_server(way: Callable[[int], Found]) -> None:
    with server("127.0.0.1") as listener, socket.create_connection(listener.getsockname()) as client:
        assert list(way(client.getsockname()[1])) == []


def test_a_server_of_another_user_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 123_456)
    with server("127.0.0.1") as listener:
        assert find_own_listener(listener.getsockname()[1]) is None


def test_without_sock_diag_the_tables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "NETLINK_SOCK_DIAG", 999)
    with server("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="rotocol"):
            list(listeners.ask_kernel(port))
        assert find_own_listener(port) == (socket.AF_INET, "127.0.0.1")


def test_an_answer_that_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "SOCK_DIAG_BY_FAMILY", 199)
    with pytest.raises(OSError, match="refused"):
        list(listeners.ask_kernel(1))
