"""The ports of a job: listens on each in the companion's pod, and says whether they answer in the job.

Readiness is an HTTP answer of this process and not a program that the kubelet starts: starting Python for
each of its probes would cost more than all connections. The answer is that of the forward's last probe: every
few seconds red-box is asked whether each port accepts a connection; a client's own connection shows it, too.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from redbox_companion.redbox_client import UpgradeRefused
from redbox_companion.streams.forward import MOST_CONNECTIONS, ForwardedPorts, begin_forward
from redbox_companion.streams.statuses import RemoteEnded

if TYPE_CHECKING:
    from collections.abc import Callable

    from redbox_companion.redbox_client import BlockingClient
    from redbox_companion.settings import CompanionSettings, JobPort

MOST_PROBES = 32
STACK_BYTES = 256 << 10
REFUSED = "PortRefused"
LASTS_S = 60.0
"""A failure that lasts for so long is reported: that a job has ended is shown sooner."""
WHOLE = "the job's ports"
DENIED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
NOT_RUNNING = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})


class JobPorts:
    """All ports of one job."""

    def __init__(
        self, pod: CompanionSettings, redbox: BlockingClient, path: str, say: Callable[[str], None]
    ) -> None:
        self._ports = pod.ports
        self._begin = partial(begin_forward, redbox, path, pod.attempt)
        self._say = say
        self._readiness_port = pod.readiness_port
        self._answers = {port.name: False for port in pod.ports}
        self._failing: dict[str, tuple[str, float]] = {}
        """How, and since when; for ever once that was reported."""
        self._last_said = ""

    def start(self) -> None:
        """Listen, and never wait: all threads end with the process."""
        threading.stack_size(STACK_BYTES)
        listeners = [(_listener(port.port), port) for port in self._ports]
        for listener, _ in listeners:
            listener.settimeout(0.0)
        self._thread(ForwardedPorts(self._begin, listeners, self).run)
        self._thread(self._answer_probes, _listener(self._readiness_port))

    # -- of the forward

    def port_answers(self, port: JobPort, *, answers: bool) -> None:
        self._answers[port.name] = answers
        if answers:
            self._failing.pop(_name_of(port), None)
            self._failing.pop(WHOLE, None)

    def probe_failed(self, port: JobPort, why: RemoteEnded) -> None:
        """That no server listens is the job's own matter; all else keeps the pod from ever being ready."""
        self._answers[port.name] = False
        if why.reason == REFUSED:
            self._failing.pop(_name_of(port), None)
        else:
            self._report_what_lasts(_name_of(port), why.reason, why)

    def connection_failed(self, port: JobPort, why: RemoteEnded) -> None:
        if why.reason == REFUSED:
            self._answers[port.name] = False
        self._report(f"{_name_of(port)}: {why}")

    def forward_failed(self, why: Exception) -> None:
        """Report a caller who may not enter, and what else lasts: a job may not have started, or have ended.

        That red-box cannot be reached is reported by the log relay, which asks the same one.
        """
        self._answers = dict.fromkeys(self._answers, False)
        if isinstance(why, RemoteEnded):
            self._report_what_lasts(WHOLE, why.reason, why)
        elif isinstance(why, UpgradeRefused):
            status, explanation = why.answer.status, why.answer.explanation
            if status in DENIED:
                self._report(f"{WHOLE} cannot be reached: {explanation}")
            elif status in NOT_RUNNING:
                self._failing.clear()
            else:
                self._report_what_lasts(WHOLE, str(status), explanation)

    # -- readiness

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

    def _report_what_lasts(self, name: str, reason: str, why: object) -> None:
        """Once for each reason: red-box's sentences count the seconds until a next try."""
        before, since = self._failing.get(name, ("", 0.0))
        now = time.monotonic()
        if before != reason:
            self._failing[name] = reason, now
        elif now - since >= LASTS_S:
            self._failing[name] = reason, float("inf")
            self._report(f"{name} cannot be reached: {why}")

    def _report(self, sentence: str) -> None:
        """The same sentence once: it stands in the job's log."""
        if sentence != self._last_said:
            self._last_said = sentence
            self._say(sentence)

    @staticmethod
    def _thread(work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()


def _name_of(port: JobPort) -> str:
    return f"port {port.name}"


def _listener(port: int) -> socket.socket:
    """On all addresses of the pod, of both families where the node has both."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", port), family=family, backlog=MOST_CONNECTIONS, dualstack_ipv6=both)
