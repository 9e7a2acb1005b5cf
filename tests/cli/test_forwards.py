"""`forward`: the program in the job that carries one connection."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubectl_slurm.commands.forwards import RELAY

SENT = 16_000_000
PIECE = 65536


@contextmanager
def relayed(
    serve: Callable[[socket.socket], None],
) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """A client of a server that serves one connection so."""

    def accept() -> None:
        with listener, listener.accept()[0] as connection:
            serve(connection)

    listener = socket.create_server(("127.0.0.1", 0))
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
