"""`forward`: the program in the job that carries one connection."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kubectl_slurm.commands.into_jobs import forwards
from kubectl_slurm.commands.into_jobs.forwards import RELAY, PortPair
from tests.ports import free_port

SENT = 16_000_000
PIECE = 65536


def refused(source: str, port: int) -> str:
    argv = [sys.executable, "-c", source, str(port)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, input="")
    assert ended.returncode == 1
    return ended.stderr


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_server_of_another_user_is_not_reached(address: str) -> None:
    with socket.create_server((address, 0)) as listener:
        as_another = RELAY.replace("os.getuid()", "4711")
        why = refused(as_another, listener.getsockname()[1])
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert "no server of this job's user listens at 127.0.0.1:" in why


def test_a_port_without_a_server_is_one_sentence() -> None:
    assert len(refused(RELAY, free_port()).splitlines()) == 1


def test_more_connections_than_this_process_may_have_do_not_end_the_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All users of this machine reach it, and each connection waits for one of four places."""
    relayed = threading.Event()
    monkeypatch.setattr(forwards, "_relay", lambda *_: relayed.set())
    monkeypatch.setattr(forwards, "FULL_S", 0)
    accepted = [OSError(errno.EMFILE, "Too many open files"), (None, None)]

    class Listener:
        def accept(self) -> object:
            if not accepted:
                threading.Event().wait()
            outcome = accepted.pop(0)
            if isinstance(outcome, OSError):
                raise outcome
            return outcome

    arguments = (None, None, Listener(), PortPair(80, 80), None)
    threading.Thread(target=forwards._accept, args=arguments, daemon=True).start()
    assert relayed.wait(60)


@contextmanager
def relayed(
    serve: Callable[[socket.socket], None], address: str = "127.0.0.1", family: int = socket.AF_INET
) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A client of a server that serves one connection so."""

    def accept() -> None:
        with listener, listener.accept()[0] as connection:
            serve(connection)

    is_v6 = family == socket.AF_INET6
    listener = socket.create_server((address, 0), family=family, dualstack_ipv6=is_v6)
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        listener.setsockopt(socket.SOL_SOCKET, buffer, PIECE)
    threading.Thread(target=accept, daemon=True).start()
    client, inside = socket.socketpair()
    argv = [sys.executable, "-c", RELAY, str(listener.getsockname()[1])]
    with inside:
        process = subprocess.Popen(argv, stdin=inside.fileno(), stdout=inside.fileno())
    with client, process:
        client.settimeout(60)
        try:
            yield client, process
        finally:
            process.kill()


def read_all(client: socket.socket) -> int:
    count = 0
    while data := client.recv(PIECE):
        count += len(data)
    return count


def test_a_server_may_answer_with_more_than_it_has_read_and_not_read_meanwhile() -> None:
    def answer(connection: socket.socket) -> None:
        while data := connection.recv(PIECE):
            connection.sendall(data * 4)

    def send() -> None:
        client.sendall(bytes(SENT))
        client.shutdown(socket.SHUT_WR)

    with relayed(answer) as (client, process):
        threading.Thread(target=send, daemon=True).start()
        assert read_all(client) == 4 * SENT
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("address", "family"),
    [("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6), ("::ffff:127.0.0.1", socket.AF_INET6)],
)
def test_a_server_is_reached_however_it_listens(address: str, family: int) -> None:
    with relayed(lambda connection: connection.sendall(b"there"), address, family) as (client, _):
        assert read_all(client) == len(b"there")
