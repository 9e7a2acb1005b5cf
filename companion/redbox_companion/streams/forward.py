"""The forward of a job's ports: all connections over one WebSocket of red-box, in one thread.

It begins when it is needed and again after its end, with the next probe or connection. While red-box cannot
be reached, clients that have connected wait for a while: it restarts in seconds.
"""

from __future__ import annotations

import json
import select
import socket
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from redbox_companion.redbox_client import RedboxUnreachable, UpgradeRefused
from redbox_companion.streams.frames import ProtocolError
from redbox_companion.streams.job_channel import END, STATUS, JobChannel
from redbox_companion.streams.local_connection import GIVEN_UP, NUMBER, LocalConnection, reset
from redbox_companion.streams.statuses import RemoteEnded, failure_of
from redbox_shared.backoff import Backoff
from redbox_shared.wire import CONNECTION_RESET, PORTS_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Callable

    from redbox_companion.redbox_client import BlockingClient
    from redbox_companion.settings import JobPort
    from redbox_companion.streams.ports import JobPorts

OPEN = 6
MOST_CONNECTIONS = 64
PROBE_EVERY_S = 3.0
UNANSWERED_S = 15.0
"""After so long a probe has found no server: the relay gives up after ten seconds."""
FORGOTTEN_S = 60.0
"""For its answer, which has the reason where Slurm does not start a relay within half a minute."""
RETRY_S = 10.0
BACKOFF = Backoff(0.2, 2.0)
REFUSED_BACKOFF = Backoff(PROBE_EVERY_S, 15.0)
"""A job may wait for hours before it runs; a connection does not wait for this."""


class ForwardedPorts:
    """Listens, probes and carries; `run` never returns."""

    def __init__(
        self,
        upgrade: Callable[[], JobChannel],
        listeners: list[tuple[socket.socket, JobPort]],
        observer: JobPorts,
    ) -> None:
        """`upgrade` begins a forward, or raises UpgradeRefused or RedboxUnreachable; `observer` reports."""
        self._upgrade = upgrade
        self._listeners = {listener.fileno(): (listener, port) for listener, port in listeners}
        self._observer = observer
        self._channel: JobChannel | None = None
        self._numbers = count(1)
        self._connections: dict[int, tuple[LocalConnection, JobPort]] = {}
        self._probes: dict[int, tuple[JobPort, float]] = {}
        self._probe_at = 0.0
        self._refusals = 0
        self._waiting: list[tuple[socket.socket, JobPort]] = []  # accepted, but there is no forward yet

    def run(self) -> None:
        while True:
            try:
                if self._channel is None:
                    self._await_reason()
                    self._begin()
                else:
                    self._turn(self._channel)
            except (RemoteEnded, ProtocolError, RedboxUnreachable, UpgradeRefused, OSError) as error:
                self._lose(error)

    # -- the forward

    def _await_reason(self) -> None:
        """A probe that is due, or a connection."""
        poll = select.poll()
        for descriptor in self._listeners:
            poll.register(descriptor, select.POLLIN)
        pause = max(0.0, self._probe_at - time.monotonic())
        if not self._waiting:
            self._accept(dict(poll.poll(pause * 1000)))

    def _begin(self) -> None:
        began, failures = time.monotonic(), 0
        while True:
            try:
                self._channel = self._upgrade()
                self._refusals = 0
                break
            except RedboxUnreachable:
                failures += 1
                if not self._waiting or time.monotonic() - began > RETRY_S:
                    raise
                time.sleep(BACKOFF.pause_s(failures))
        self._open_waiting()

    def _lose(self, error: Exception) -> None:
        """All connections break; the next probe or connection begins a new forward."""
        if self._channel is not None:
            self._channel.close(whole=False)
            self._channel = None
        for connection, _ in self._connections.values():
            reset(connection.socket)
        for client, _ in self._waiting:
            reset(client)
        self._connections.clear()
        self._waiting.clear()
        self._probes.clear()
        self._refusals += isinstance(error, UpgradeRefused)
        self._probe_at = time.monotonic() + REFUSED_BACKOFF.full_pause_s(max(self._refusals, 1))
        self._observer.forward_failed(error)

    def _turn(self, channel: JobChannel) -> None:
        self._probe()
        poll, owners = self._interests(channel)
        has_unread = channel.has_unread
        ready = channel.wait(poll, has_unread=has_unread, longest_s=self._until_probe())
        for descriptor in ready.keys() & owners.keys():
            self._serve(owners[descriptor], ready[descriptor])
        self._accept(ready)
        self._open_waiting()
        if has_unread or ready.get(channel.socket.fileno(), 0) & ~select.POLLOUT:
            self._receive(channel)
        channel.flush()

    def _interests(self, channel: JobChannel) -> tuple[select.poll, dict[int, int]]:
        """What to wait for, and the numbers of connections by descriptor."""
        poll, owners = select.poll(), {}
        may_send = channel.has_room
        for number, (connection, _) in self._connections.items():
            if events := connection.events(may_send=may_send):
                poll.register(connection.socket, events)
                owners[connection.socket.fileno()] = number
        poll.register(channel.socket, channel.events(reads=True))
        if len(self._connections) < MOST_CONNECTIONS:
            for descriptor in self._listeners:
                poll.register(descriptor, select.POLLIN)
        return poll, owners

    def _receive(self, channel: JobChannel) -> None:
        for kind, message in channel.read():
            self._take(kind, message)
        if channel.is_closed:
            raise RemoteEnded("ConnectionLost", "red-box closed the forward without a status")

    def _take(self, channel: int, message: bytes) -> None:
        if len(message) < NUMBER.size:
            raise ProtocolError("a message without the number of its connection")
        (number,) = NUMBER.unpack_from(message)
        data = message[NUMBER.size :]
        if not number:
            raise failure_of(data) or RemoteEnded("Ended", "red-box ended the forward")
        if number in self._probes:
            port, _ = self._probes.pop(number)
            if (failure := failure_of(data)) is None:
                self._observer.port_answers(port, answers=True)
            else:
                self._observer.probe_failed(port, failure)
        elif number in self._connections:
            self._take_of_connection(number, channel, data)

    # -- connections

    def _accept(self, ready: dict[int, int]) -> None:
        for descriptor in ready.keys() & self._listeners.keys():
            listener, port = self._listeners[descriptor]
            try:
                self._waiting.append((listener.accept()[0], port))
            except BlockingIOError:
                continue
            except OSError as error:  # no more descriptors: the next may fit
                self._observer.connection_failed(
                    port, RemoteEnded("", f"a connection was not accepted: {error}")
                )
                time.sleep(BACKOFF.pause_s(1))

    def _open_waiting(self) -> None:
        for client, port in self._waiting:
            number = next(self._numbers)
            self._connections[number] = LocalConnection(client, partial(self._send, number)), port
            self._send_open(number, port)
        self._waiting.clear()

    def _send_open(self, number: int, port: JobPort, **more: bool) -> None:
        node = {"node": port.node} if port.node else {}
        self._send(number, OPEN, json.dumps({"port": port.target_port, **node, **more}).encode())

    def _send(self, number: int, channel: int, data: bytes) -> None:
        if self._channel is not None:
            self._channel.send(channel, NUMBER.pack(number) + data)

    def _serve(self, number: int, events: int) -> None:
        try:
            self._connections[number][0].serve(events)
        except OSError:  # its client has gone
            self._give_up(number)
        else:
            self._close_if_done(number)

    def _take_of_connection(self, number: int, channel: int, data: bytes) -> None:
        connection, port = self._connections[number]
        try:
            if channel != STATUS:
                connection.take(channel, data)
            elif (failure := failure_of(data)) is None:
                connection.end()
            else:
                if failure.reason != CONNECTION_RESET:
                    self._observer.connection_failed(port, failure)
                reset(connection.socket)
                del self._connections[number]
                return
        except OSError:
            self._give_up(number)
        else:
            self._close_if_done(number)

    def _close_if_done(self, number: int) -> None:
        connection, port = self._connections[number]
        if connection.is_done:
            connection.socket.close()
            del self._connections[number]
            self._observer.port_answers(port, answers=True)

    def _give_up(self, number: int) -> None:
        connection, _ = self._connections.pop(number)
        reset(connection.socket)
        self._send(number, END, GIVEN_UP)

    # -- probes

    def _probe(self) -> None:
        now = time.monotonic()
        if now < self._probe_at:
            return
        self._probe_at = now + PROBE_EVERY_S
        for number, (port, began) in list(self._probes.items()):
            if now - began > UNANSWERED_S:
                self._observer.port_answers(port, answers=False)
            if now - began > FORGOTTEN_S:
                del self._probes[number]
                self._send(number, END, GIVEN_UP)
        under_way = {port.name for port, _ in self._probes.values()}
        for _, port in self._listeners.values():
            if port.name not in under_way:
                number = next(self._numbers)
                self._probes[number] = port, now
                self._send_open(number, port, probe=True)

    def _until_probe(self) -> float:
        return max(0.0, self._probe_at - time.monotonic())


def begin_forward(redbox: BlockingClient, path: str, attempt: int) -> JobChannel:
    """Raise UpgradeRefused or RedboxUnreachable if it cannot."""
    return JobChannel(redbox.upgrade(f"{path}/ports", {"attempt": attempt}, PORTS_PROTOCOL))
