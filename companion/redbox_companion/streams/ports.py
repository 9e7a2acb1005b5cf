"""The ports of a job: listens on each in the companion's pod, and carries connections to the job.

Readiness is an HTTP answer of this process and not a program that the kubelet starts: starting Python for
each probe would cost more than all connections. The answer is that of the last look: every few seconds one
connection to each port of the job, unless a client's own connection has just shown the same.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING

from redbox_companion.redbox_client import RedboxUnreachable, UpgradedConnection, UpgradeRefused
from redbox_companion.streams.bridge import RESET, TO_JOB, Bridge, RemoteEnded, failure_of
from redbox_companion.streams.frames import BINARY, CLOSE, MessageReader, ProtocolError, encode
from redbox_companion.streams.job_channel import END, STATUS
from redbox_shared.backoff import Backoff
from redbox_shared.keep_alive import KEEP_ALIVE
from redbox_shared.wire import PORTS_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from redbox_companion.redbox_client import BlockingClient
    from redbox_companion.settings import CompanionSettings, JobPort

MOST_CONNECTIONS = 64
MOST_PROBES = 32
LOOK_EVERY_S = 3.0
LOOK_SILENT_S = 3.0  # a server that is silent for so long has at least accepted
RETRY_S = 10.0
BACKOFF = Backoff(0.2, 2.0)
STACK_BYTES = 256 << 10


class JobPorts:
    """All ports of one job."""

    def __init__(
        self, pod: CompanionSettings, redbox: BlockingClient, path: str, say: Callable[[str], None]
    ) -> None:
        ports = self._ports = pod.ports
        self._redbox = redbox
        self._path = path
        self._attempt = pod.attempt
        self._say = say
        self._readiness_port = pod.readiness_port
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._answers = {port.name: False for port in ports}
        self._seen_at = {port.name: -LOOK_EVERY_S for port in ports}
        self._last_said = ""

    def start(self) -> None:
        """Listen, and never wait: all threads end with the process."""
        threading.stack_size(STACK_BYTES)
        for port in self._ports:
            listener = _listener(port.port)
            self._thread(self._accept, listener, port)
        self._thread(self._answer_probes, _listener(self._readiness_port))
        self._thread(self._look)

    # -- connections

    def _accept(self, listener: socket.socket, port: JobPort) -> None:
        while True:
            self._free.acquire()
            try:
                local, _ = listener.accept()
                self._thread(self._carry, local, port)
            except (OSError, RuntimeError) as error:  # no more descriptors or threads: the next may fit
                self._free.release()
                self._report(f"port {port.name}: a connection was not accepted: {error}")
                time.sleep(LOOK_EVERY_S)

    def _carry(self, local: socket.socket, port: JobPort) -> None:
        try:
            for option in KEEP_ALIVE:
                local.setsockopt(*option)
            Bridge(local, self._connected(port)).run()
            self._seen(port, answers=True)
        except RemoteEnded as closed:
            self._report(f"port {port.name}: {closed}")
        except UpgradeRefused as refusal:
            self._refused(port, refusal)
        except (RedboxUnreachable, ProtocolError) as error:
            self._report(f"port {port.name}: {error}")
        except OSError:
            pass  # the client went away, or red-box: the reset has passed that on
        finally:
            self._free.release()
            with contextlib.suppress(OSError):
                local.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            local.close()

    def _connected(self, port: JobPort) -> UpgradedConnection:
        """Repeated for a while: red-box restarts in seconds."""
        began, failures = time.monotonic(), 0
        while True:
            try:
                return self._connect(port)
            except RedboxUnreachable:
                failures += 1
                if time.monotonic() - began > RETRY_S:
                    raise
                time.sleep(BACKOFF.pause_s(failures))

    def _connect(self, port: JobPort) -> UpgradedConnection:
        query = {"attempt": self._attempt, **({"node": port.node} if port.node else {})}
        return self._redbox.upgrade(f"{self._path}/ports/{port.target_port}", query, PORTS_PROTOCOL)

    # -- readiness

    def _look(self) -> None:
        while True:
            for port in self._ports:
                if time.monotonic() - self._seen_at[port.name] >= LOOK_EVERY_S:
                    self._seen(port, answers=self._does_answer(port))
            time.sleep(LOOK_EVERY_S)

    def _does_answer(self, port: JobPort) -> bool:
        try:
            opened = self._connect(port)
            with opened.socket:
                opened.socket.settimeout(LOOK_SILENT_S)
                return _accepts(opened)
        except UpgradeRefused as refusal:
            self._refused(port, refusal)
        except (RedboxUnreachable, ProtocolError, OSError):
            pass  # reported by the log relay, which asks the same red-box
        return False

    def _seen(self, port: JobPort, *, answers: bool) -> None:
        self._answers[port.name] = answers
        self._seen_at[port.name] = time.monotonic()

    def _answer_probes(self, listener: socket.socket) -> None:
        """Answer each that has asked; one that is silent makes room for a newer one."""
        listener.settimeout(0.0)
        silent: deque[socket.socket] = deque()
        while True:
            ready, _, _ = select.select([listener, *silent], [], [])
            with contextlib.suppress(OSError):
                if listener in ready:
                    silent.append(listener.accept()[0])
                if len(silent) > MOST_PROBES:
                    silent.popleft().close()
            for probe in [probe for probe in silent if probe in ready]:
                silent.remove(probe)
                self._answer(probe)

    def _answer(self, probe: socket.socket) -> None:
        with probe, contextlib.suppress(OSError):
            probe.settimeout(0.0)
            if probe.recv(4096):
                probe.send(self._readiness())

    def _readiness(self) -> bytes:
        silent = [name for name, answers in self._answers.items() if not answers]
        text = f"does not answer in the job: {', '.join(silent)}\n" if silent else "ready\n"
        status = "503 Service Unavailable" if silent else "200 OK"
        return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()

    # -- reports

    def _refused(self, port: JobPort, refusal: UpgradeRefused) -> None:
        """Report only a caller who may not enter: a job may not have started yet, or have ended."""
        self._seen(port, answers=False)
        if refusal.answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            self._report(f"the job's ports cannot be reached: {refusal.answer.explanation}")

    def _report(self, sentence: str) -> None:
        """The same sentence once: it stands in the job's log."""
        if sentence != self._last_said:
            self._last_said = sentence
            self._say(sentence)

    @staticmethod
    def _thread(work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()


def _accepts(opened: UpgradedConnection) -> bool:
    """Whether the job's server takes a connection that ends at once: red-box would say that it did not."""
    reader, received = MessageReader(), opened.received
    opened.socket.sendall(encode(BINARY, bytes((END, TO_JOB))))
    try:
        while True:
            for kind, message in reader.feed(received):
                if kind == CLOSE:
                    return False  # without a status
                if kind == BINARY:
                    return message[:1] != bytes((STATUS,)) or failure_of(message[1:]) is None
            received = opened.socket.recv(4096)
            if not received:
                return False
    except TimeoutError:
        return True


def _listener(port: int) -> socket.socket:
    """On all addresses of the pod, of both families where the node has both."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=MOST_CONNECTIONS, dualstack_ipv6=both)
