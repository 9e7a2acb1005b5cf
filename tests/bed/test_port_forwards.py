"""Ports that lead elsewhere: bytes arrive, ends end, and what cannot be is said clearly."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from redbox_bed.core.errors import NotPossibleError
from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.core.plan import Forward, Options, make_plan
from redbox_bed.forwarder import parse_route
from redbox_bed.port_forwards import listening_inodes, port_owner, refuse_taken_ports, targets
from tests.ports import free_port

LARGE = bytes(range(256)) * 32768


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", free_port())) as target:
        target.settimeout(60)
        yield target


@pytest.fixture
def entrance(target: socket.socket) -> Iterator[tuple[str, int]]:
    """Where the forwarder listens for the target."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        route = f"{listening.fileno()}=127.0.0.1:{target.getsockname()[1]}"
        forwarder = subprocess.Popen(
            [sys.executable, "-m", "redbox_bed.forwarder", route],
            pass_fds=[listening.fileno()],
            stdout=subprocess.DEVNULL,
            cwd=PACKAGE.parent,
        )
        address: tuple[str, int] = listening.getsockname()
    yield address
    forwarder.kill()
    forwarder.wait()


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=60)


def send_all(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def receive_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_a_side_that_is_done_sending_still_receives(target: socket.socket, entrance: tuple[str, int]) -> None:
    with connect(entrance) as client:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        served, _ = target.accept()
        with served:
            served.settimeout(60)
            assert receive_all(served) == b"question"
            served.sendall(b"answer")
        assert receive_all(client) == b"answer"


def test_much_data_arrives_whole_although_the_reader_is_late(
    target: socket.socket, entrance: tuple[str, int]
) -> None:
    with connect(entrance) as client:
        served, _ = target.accept()
        with served:
            served.settimeout(60)
            sender = Thread(target=send_all, args=(client, LARGE))
            sender.start()
            first = served.recv(1)
            assert first + receive_all(served) == LARGE
            sender.join()


def test_a_target_that_is_away_ends_the_connection_and_the_next_one_works_when_it_is_back(
    target: socket.socket, entrance: tuple[str, int]
) -> None:
    address = target.getsockname()
    target.close()
    with connect(entrance) as client:
        assert receive_all(client) == b""
    with socket.create_server(address) as back, connect(entrance) as client:
        served, _ = back.accept()
        with served:
            served.sendall(b"yes")
        assert receive_all(client) == b"yes"


def test_a_port_that_is_taken_is_named_with_its_owner(tmp_path: Path) -> None:
    places = Places(state=tmp_path, cache=tmp_path)
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        plan = replace(make_plan(Options()), forwards=(Forward(port, "k0", 6443),))
        assert str(port_owner(port)).endswith(f"(pid {os.getpid()})")
        with pytest.raises(NotPossibleError, match=rf"port {port} on 127.0.0.1 is taken by \S+ \(pid \d+\)"):
            refuse_taken_ports(places, plan)
    refuse_taken_ports(places, plan)


def test_an_address_that_is_not_this_machines_is_named(tmp_path: Path) -> None:
    plan = replace(make_plan(Options()), forwards=(Forward(18443, "login", 8443, "192.0.2.7"),))
    with pytest.raises(NotPossibleError, match=r"BED_ADDRESS=192\.0\.2\.7 is not an address of this machine"):
        refuse_taken_ports(Places(state=tmp_path, cache=tmp_path), plan)


def test_listeners_are_told_from_connections() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:403B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0\n"
        "   1: 0100007F:403B 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0\n"
    )
    assert listening_inodes(table, 0x403B) == {"111"}
    assert listening_inodes(table, 0x1F90) == set()


def test_the_api_server_and_login_are_reached_by_the_ports_of_the_plan() -> None:
    leading = {(target.port, target.address, target.target_port) for target in targets(make_plan(Options()))}
    assert {(16443, "10.77.0.40", 6443), (12222, "10.77.0.10", 22)} <= leading


def test_a_route_is_a_descriptor_and_a_target() -> None:
    assert parse_route("7=10.77.0.40:6443") == (7, "10.77.0.40", 6443)
