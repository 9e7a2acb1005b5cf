"""The ports of a job, as clients in Kubernetes find them: real sockets, a real WebSocket, a real process."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from redbox_companion.streams.local_connection import LocalConnection, reset
from redbox_shared.wire import MESSAGE_COST, PORTS_WINDOW
from tests.companion.fakes import ScriptedServer
from tests.companion.harness import Pod
from tests.ports import free_port

RUNNING = {"phase": "Running", "state": "RUNNING", "jobID": "7"}
TRIES = 1200


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of the job; probes connect to it, too."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve_one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve_one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.fixture
def echo() -> Iterator[int]:
    """Sends back what it gets, after the client's end."""

    def serve(connection: socket.socket) -> None:
        received = b""
        while data := connection.recv(65536):
            received += data
        connection.sendall(received)

    with serving(serve) as port:
        yield port


@pytest.fixture
def parrot() -> Iterator[int]:
    """Sends back what it gets, at once."""

    def serve(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(data)

    with serving(serve) as port:
        yield port


@pytest.fixture
def start(pod: Pod, redbox: ScriptedServer) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Start a companion whose one port leads to this one of the job."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(target: int) -> subprocess.Popen[bytes]:
        redbox.job = dict(RUNNING)
        port = {"name": "http", "port": free_port(), "targetPort": target}
        pod.environ["REDBOX_PORTS"] = json.dumps([port])
        pod.environ["REDBOX_READINESS_PORT"] = str(free_port())
        pod.environ["REDBOX_MODE"] = "ports-only"
        started.append(pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def connect(pod: Pod) -> socket.socket:
    (port,) = json.loads(pod.environ["REDBOX_PORTS"])
    for _ in range(TRIES):
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port["port"]), timeout=60)
        threading.Event().wait(0.05)
    raise AssertionError("the companion does not listen")


def readiness(pod: Pod) -> tuple[int, str]:
    url = f"http://127.0.0.1:{pod.environ['REDBOX_READINESS_PORT']}/"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def readiness_becomes(pod: Pod, status: int) -> str:
    for _ in range(TRIES):
        with suppress(OSError):
            if (seen := readiness(pod))[0] == status:
                return seen[1]
        threading.Event().wait(0.05)
    raise AssertionError(f"readiness does not become {status}")


def exchange(connection: socket.socket, data: bytes) -> bytes:
    with connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


Start = Callable[[int], subprocess.Popen[bytes]]


def test_bytes_go_both_ways_and_the_end_of_one_way_leaves_the_other(
    pod: Pod, start: Start, echo: int
) -> None:
    start(echo)
    data = bytes(range(256)) * 300
    assert exchange(connect(pod), data) == data


def test_more_bytes_than_a_window_go_both_ways(pod: Pod, start: Start, parrot: int) -> None:
    start(parrot)
    data = os.urandom(3 * PORTS_WINDOW)
    with connect(pod) as connection:
        sending = threading.Thread(target=connection.sendall, args=(data,))
        sending.start()
        received = b""
        while len(received) < len(data):
            received += connection.recv(65536)
        sending.join()
    assert received == data


def test_after_a_forward_that_broke_the_next_connection_begins_one(
    pod: Pod, redbox: ScriptedServer, start: Start, parrot: int
) -> None:
    start(parrot)
    with connect(pod) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        redbox.end_forwards()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert exchange(connect(pod), b"again") == b"again"


def test_more_connections_than_are_carried_wait_for_one_that_ends(pod: Pod, start: Start, echo: int) -> None:
    start(echo)
    with ExitStack() as opened:
        held = [opened.enter_context(connect(pod)) for _ in range(64)]
        for connection in held:
            connection.sendall(b"no end")
        with connect(pod) as late:
            late.sendall(b"late")
            late.shutdown(socket.SHUT_WR)
            late.settimeout(0.5)
            with pytest.raises(TimeoutError):
                late.recv(1)
            assert exchange(held[0], b"") == b"no end"
            late.settimeout(60)
            assert late.recv(4) == b"late"


def test_a_client_that_stalls_holds_back_no_other(pod: Pod, start: Start, echo: int) -> None:
    start(echo)
    with connect(pod) as stalled:
        stalled.sendall(b"no end")
        assert exchange(connect(pod), b"another") == b"another"


def test_a_client_that_leaves_while_the_job_reads_nothing_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        connection = LocalConnection(listener.accept()[0], lambda *_: None)
    with connection.socket, client:

        def polled(longest_s: float) -> int:
            poll = select.poll()
            poll.register(connection.socket, connection.events(may_send=True))
            return dict(poll.poll(longest_s * 1000)).get(connection.socket.fileno(), 0)

        threading.Thread(target=client.sendall, args=(bytes(PORTS_WINDOW - MESSAGE_COST),)).start()
        while connection.events(may_send=True) & select.POLLIN:
            connection.serve(polled(20))
        client.sendall(b"more than the credit")
        assert not polled(0)
        reset(client)
        with pytest.raises(ConnectionResetError):
            connection.serve(polled(20))


def test_it_is_ready_while_the_port_answers_in_the_job(pod: Pod, start: Start, echo: int) -> None:
    start(echo)
    assert readiness_becomes(pod, 200) == "ready\n"


def test_silent_connections_to_the_readiness_port_hold_back_no_probe(
    pod: Pod, start: Start, echo: int
) -> None:
    start(echo)
    assert readiness_becomes(pod, 200) == "ready\n"
    address = ("127.0.0.1", int(pod.environ["REDBOX_READINESS_PORT"]))
    with ExitStack() as silent:
        for _ in range(100):
            silent.enter_context(socket.create_connection(address, timeout=60))
        assert readiness(pod) == (200, "ready\n")


def test_a_port_without_a_server_is_not_ready_and_resets_its_connections(pod: Pod, start: Start) -> None:
    start(free_port())
    with pytest.raises(ConnectionResetError):
        exchange(connect(pod), b"x")
    assert readiness_becomes(pod, 503) == "does not answer in the job: http\n"


def test_a_red_box_that_allows_nobody_in_is_one_sentence_in_the_log(
    pod: Pod, redbox: ScriptedServer, start: Start
) -> None:
    redbox.refuse_port = (403, {"title": "Forbidden", "detail": "exec is turned off"})
    process = start(free_port())
    for _ in range(3):
        with pytest.raises(ConnectionResetError):
            exchange(connect(pod), b"x")
    redbox.job = {**RUNNING, "phase": "Succeeded", "state": "COMPLETED", "exitCode": 0}
    _, errors = process.communicate(timeout=60)
    assert errors.decode().count("the job's ports cannot be reached: Forbidden: exec is turned off") == 1


def test_connections_end_with_the_job(pod: Pod, redbox: ScriptedServer, start: Start, echo: int) -> None:
    process = start(echo)
    with connect(pod) as connection:
        connection.sendall(b"no end")
        redbox.job = {**RUNNING, "phase": "Succeeded", "state": "COMPLETED", "exitCode": 0}
        assert process.wait(timeout=60) == 0
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert pod.termination_message["final"] is True
