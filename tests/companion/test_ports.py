"""The ports of a job, as clients in Kubernetes find them: real sockets, a real WebSocket, a real process."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from redbox_companion.redbox_client import RedboxAnswer, UpgradeRefused
from redbox_companion.settings import JobPort
from redbox_companion.streams import forward, ports
from redbox_companion.streams.forward import ForwardedPorts
from redbox_companion.streams.job_channel import END, STATUS
from redbox_companion.streams.local_connection import FROM_JOB, GIVEN_UP, NUMBER, LocalConnection, reset
from redbox_companion.streams.ports import JobPorts
from redbox_companion.streams.statuses import RemoteEnded
from redbox_shared.wire import MESSAGE_COST, PORTS_WINDOW
from tests.companion.fakes import ScriptedServer
from tests.companion.harness import Pod
from tests.companion.test_results import entry, tar
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
        pod.environ["REDBOX_MODE"] = "helper"
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_connections_of_a_companion_that_is_moved_or_killed_are_reset(
    pod: Pod, start: Start, parrot: int, number: int
) -> None:
    process = start(parrot)
    with connect(pod) as connection:
        connection.sendall(b"half of an answer")
        assert connection.recv(65536)
        process.send_signal(number)
        with pytest.raises(ConnectionResetError):
            connection.recv(65536)


def test_what_a_job_sent_last_is_read_after_its_connection_was_closed() -> None:
    """The kernel still has most of it."""
    whole = bytes(100_000)
    with socket.socket() as listener, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client.connect(listener.getsockname())
        connection = LocalConnection(listener.accept()[0], lambda *_: None)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(whole))
        connection.take(FROM_JOB, whole)
        connection.end()
        assert connection.is_done
        connection.socket.close()
        client.settimeout(60)
        read = b"".join(iter(lambda: client.recv(65536), b""))
    assert read == whole


HTTP, METRICS = JobPort("http", 8080, 80, ""), JobPort("metrics", 9090, 90, "n9")
ELSEWHERE = RemoteEnded("Invalid", "Node n9 is not one of the job's nodes: n1.")
BUSY = "alice has 100 sessions open: end some (exec.max_sessions_per_user)."


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def job_ports(said: list[str]) -> JobPorts:
    pod: Any = SimpleNamespace(ports=[HTTP, METRICS], attempt=1, readiness_port=1)
    redbox: Any = None
    return JobPorts(pod, redbox, "/v1/jobs/k1", said.append)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    for module in (forward, ports):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_why_a_port_is_never_reached_is_one_line_in_the_log(
    job_ports: JobPorts, said: list[str], clock: SimpleNamespace
) -> None:
    """Behind a Service no client would ever ask, as its pod is not ready."""
    for clock.now in range(0, 600, 3):
        job_ports.port_answers(HTTP, answers=True)
        why = RemoteEnded("RelayLost", f"no python3 on the node It is tried again in {600 - clock.now} s")
        job_ports.probe_failed(METRICS, why if clock.now >= 300 else ELSEWHERE)
    assert [line[:40] for line in said] == [
        "port metrics cannot be reached: Node n9 ",
        "port metrics cannot be reached: no pytho",
    ]


def test_what_passes_as_a_job_ends_or_starts_is_not_reported(
    job_ports: JobPorts, said: list[str], clock: SimpleNamespace
) -> None:
    lost = RemoteEnded("RelayLost", "srun: Slurm job 7 has expired")
    ended = UpgradeRefused(RedboxAnswer(409, {"title": "Conflict", "detail": "The job has ended"}))
    for clock.now in range(0, 30, 3):
        job_ports.probe_failed(HTTP, lost)
    for clock.now in range(30, 600, 15):
        job_ports.forward_failed(ended)
    for clock.now in range(600, 630, 3):
        job_ports.probe_failed(HTTP, lost)
    for clock.now in range(630, 900, 3):
        job_ports.probe_failed(HTTP, RemoteEnded("PortRefused", "nothing of the job listens"))
    assert not said


def test_a_limit_that_lasts_is_one_line_in_the_log(
    job_ports: JobPorts, said: list[str], clock: SimpleNamespace
) -> None:
    busy = UpgradeRefused(RedboxAnswer(429, {"title": "Too many requests", "detail": BUSY}))
    for clock.now in range(0, 600, 15):
        job_ports.forward_failed(busy)
    assert said == [f"the job's ports cannot be reached: Too many requests: {BUSY}"]


def test_the_reason_of_a_probe_may_come_late(
    job_ports: JobPorts, monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace
) -> None:
    """Slurm may take half a minute until it does not start a relay."""
    failed: list[str] = []
    monkeypatch.setattr(job_ports, "probe_failed", lambda port, why: failed.append(f"{port.name}: {why}"))
    listeners: Any = [(SimpleNamespace(fileno=lambda: 3), HTTP)]
    upgrade: Any = None
    forwarded = ForwardedPorts(upgrade, listeners, job_ports)
    clock.now = 1.0
    forwarded._probe()
    (number,) = forwarded._probes
    for clock.now in range(4, 31, 3):
        forwarded._probe()
        assert list(forwarded._probes) == [number]
    late = {"status": "Failure", "reason": "RelayLost", "message": "Slurm did not start its step"}
    forwarded._take(STATUS, NUMBER.pack(number) + json.dumps(late).encode())
    assert failed == ["http: Slurm did not start its step"]
    clock.now = 31.0
    forwarded._probe()
    (unanswered,) = forwarded._probes
    sent: list[bytes] = []
    channel: Any = SimpleNamespace(send=lambda kind, message: sent.append(bytes([kind]) + message))
    forwarded._channel = channel
    clock.now += forward.FORGOTTEN_S + 4
    forwarded._probe()
    assert unanswered not in forwarded._probes
    assert sent[0] == bytes([END]) + NUMBER.pack(unanswered) + GIVEN_UP


def test_connections_end_with_the_job_and_its_results_are_collected(
    pod: Pod, redbox: ScriptedServer, start: Start, echo: int
) -> None:
    results, redbox.tars["a"] = pod.want_results("a"), tar(entry("a", b"a"))
    process = start(echo)
    with connect(pod) as connection:
        connection.sendall(b"no end")
        redbox.job = {**RUNNING, "phase": "Succeeded", "state": "COMPLETED", "exitCode": 0}
        assert process.wait(timeout=60) == 0
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert pod.termination_message["results"]["outcome"] == "Collected"
    assert (results / "a").read_bytes() == b"a"
