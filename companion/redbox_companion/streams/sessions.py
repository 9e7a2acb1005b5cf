"""Sessions in the job for programs of this container, which hand over their streams (`exec_program`).

One thread for each session; of a stream that stalls only its own session waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from redbox_companion.redbox_client import RedboxUnreachable, UpgradeRefused
from redbox_companion.streams.frames import ProtocolError
from redbox_companion.streams.job_channel import (
    AGAIN,
    END,
    MOST_HELD,
    PIECE,
    RESIZE,
    STATUS,
    JobChannel,
    send_held,
)
from redbox_companion.streams.statuses import failure_of
from redbox_shared.wire import EXEC_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redbox_companion.redbox_client import BlockingClient

STDIN, STDOUT, STDERR = 0, 1, 2
CANNOT_START = 125
MOST_SESSIONS = 4
"""Each has a program of some 5 MiB in the container."""
LONGEST_REQUEST = 2 << 20
REQUEST_S = 10.0
UNREAD_S = 3600.0
"""As long as a session may be idle by default: `kubectl exec ... | less`."""
STACK_BYTES = 256 << 10
SILENT_S = 600.0
"""Of a session that gives way where all places are taken."""
PEER = struct.Struct("iII")  # pid, uid and gid of the other end of a Unix socket


class GaveWay(Exception):
    """A newer session has the place of this one."""


class SessionServer:
    """All sessions of one job."""

    def __init__(self, redbox: BlockingClient, path: str, attempt: int) -> None:
        self._redbox = redbox
        self._path = path
        self._attempt = attempt
        self._free = threading.BoundedSemaphore(MOST_SESSIONS)
        self._bridges: list[SessionBridge] = []

    def take(self, client: socket.socket) -> None:
        """Begin a session, and do not wait for it."""
        threading.stack_size(STACK_BYTES)
        threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            if not is_of_this_container(client):
                return
            try:
                with received_request(client) as (request, streams):
                    self._run_if_free(client, request, streams)
            except (OSError, ValueError) as error:
                answer(client, f"the session was not begun: {error}")

    def _run_if_free(self, client: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
        if not self._free.acquire(blocking=False) and not self._took_a_silent_ones_place():
            answer(client, f"the pod of a SlurmJob has at most {MOST_SESSIONS} sessions: end one of them")
            return
        try:
            self._run(client, request, streams)
        finally:
            self._free.release()

    def _took_a_silent_ones_place(self) -> bool:
        """The program of a kubectl that was killed stays in the container, and would keep its place."""
        since = time.monotonic() - SILENT_S
        silent = [bridge for bridge in self._bridges if bridge.moved_at <= since and not bridge.gives_way]
        if not silent:
            return False
        min(silent, key=lambda bridge: bridge.moved_at).give_way()
        return self._free.acquire(timeout=REQUEST_S)

    def _run(self, client: socket.socket, request: dict[str, Any], streams: list[int]) -> None:
        try:
            remote = self._redbox.upgrade(f"{self._path}/exec", {"attempt": self._attempt}, EXEC_PROTOCOL)
            channel = JobChannel(remote)
            channel.send_text(request)
            bridge = SessionBridge(client, streams, channel)
            self._bridges.append(bridge)
            try:
                message, code = bridge.run()
            finally:
                self._bridges.remove(bridge)
        except GaveWay as reason:
            message, code = str(reason), CANNOT_START
        except UpgradeRefused as refusal:
            message, code = refusal.answer.explanation, CANNOT_START
        except (RedboxUnreachable, ProtocolError) as error:
            message, code = str(error), CANNOT_START
        except OSError as error:
            message, code = f"the connection to red-box broke, and the session with it: {error}", CANNOT_START
        answer(client, message, code)


def is_of_this_container(client: socket.socket) -> bool:
    """Other containers have their own processes, whose ids cannot be seen here, and may have other users."""
    pid, uid, _ = PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return bool(pid > 0 and uid == os.getuid())


@contextlib.contextmanager
def received_request(client: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """The first line, with the newest size behind it, and the streams, which are closed in the end.

    Others have them, too, such as the shell in which the program was started: they find them as they were.
    """
    client.settimeout(REQUEST_S)
    line, streams, _, _ = socket.recv_fds(client, PIECE, 3)
    blocking = [stream for stream in streams if os.get_blocking(stream)]
    try:
        while not line.endswith(b"\n"):
            data = client.recv(PIECE)
            if not data or len(line) > LONGEST_REQUEST:
                raise ValueError("its request is cut, or longer than 2 MiB")
            line += data
        first, *sizes = line.split(b"\n")[:-1]
        request = json.loads(first)
        if not isinstance(request, dict) or len(streams) != len((STDIN, STDOUT, STDERR)):
            raise ValueError("its request is not a JSON object with three streams")
        if sizes:
            request["size"] = json.loads(sizes[-1])["size"]
        for stream in streams:
            os.set_blocking(stream, False)
        yield request, streams
    finally:
        for stream in blocking:
            os.set_blocking(stream, True)
        for stream in streams:
            os.close(stream)


def answer(client: socket.socket, message: str, code: int = CANNOT_START) -> None:
    with contextlib.suppress(OSError):
        client.settimeout(REQUEST_S)
        client.sendall(json.dumps({"message": message, "code": code}).encode())


class SessionBridge:
    """Copies between the program's streams and red-box, until the session ends or the program has gone."""

    def __init__(self, client: socket.socket, streams: list[int], remote: JobChannel) -> None:
        self._client = client
        self._client.settimeout(0.0)
        self._lines = bytearray()
        self._stdin, stdout, stderr = streams
        self._outputs = {STDOUT: stdout, STDERR: stderr}
        self._held = {STDOUT: bytearray(), STDERR: bytearray()}
        self._remote = remote
        self._has_input = True
        self.moved_at = time.monotonic()
        """When something came, from either side."""
        self.gives_way = False
        self._end: tuple[str, int] | None = None

    def run(self) -> tuple[str, int]:
        """What is to be said at the end, and the exit code."""
        whole = False
        try:
            while self._end is None:
                self._step()
            self._drain()
            whole = True
        finally:
            self._remote.close(whole=whole)
        return self._end

    def give_way(self) -> None:
        """From another thread: end, as if the program had ended, and say why."""
        self.gives_way = True
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RD)

    def _step(self) -> None:
        reads_remote = all(len(held) < MOST_HELD for held in self._held.values())
        reads_input = self._has_input and self._remote.has_room
        poll = select.poll()
        poll.register(self._client, select.POLLIN)
        if reads_input:
            poll.register(self._stdin, select.POLLIN)
        for channel, held in self._held.items():
            if held:
                poll.register(self._outputs[channel], select.POLLOUT)
        if events := self._remote.events(reads=reads_remote):
            poll.register(self._remote.socket, events)
        has_unread = reads_remote and self._remote.has_unread
        ready = self._remote.wait(poll, has_unread=has_unread)
        if self._client.fileno() in ready:
            self._read_client()
        if reads_input and self._stdin in ready:
            self._read_input()
        self._write_outputs()
        self._remote.flush()
        if has_unread or (reads_remote and ready.get(self._remote.socket.fileno(), 0) & ~select.POLLOUT):
            self._read_remote()

    def _read_client(self) -> None:
        """New sizes of the terminal, or the end of the program."""
        with contextlib.suppress(*AGAIN):
            data = self._client.recv(PIECE)
            if not data and self.gives_way:
                minutes = f"{(time.monotonic() - self.moved_at) / 60:.0f} min"
                raise GaveWay(f"another session took this one's place: it was silent for {minutes}")
            if not data:
                raise ConnectionResetError("the program has ended")
            self._lines += data
            *lines, rest = bytes(self._lines).split(b"\n")
            self._lines[:] = rest[-PIECE:]
            for line in lines[-1:]:  # only the newest size counts
                size = json.loads(line)["size"]
                document = {"Width": size["columns"], "Height": size["rows"]}
                self._remote.send(RESIZE, json.dumps(document).encode())

    def _read_input(self) -> None:
        try:
            data = os.read(self._stdin, PIECE)
        except BlockingIOError:
            return
        except OSError:  # a terminal that was hung up
            data = b""
        self._has_input = bool(data)
        self.moved_at = time.monotonic()
        self._remote.send(*((STDIN, data) if data else (END, bytes((STDIN,)))))

    def _read_remote(self) -> None:
        for channel, data in self._remote.read():
            self.moved_at = time.monotonic()
            if channel in self._held:
                self._held[channel] += data
            elif channel == STATUS:
                self._end = end_of(data)
        if self._remote.is_closed and self._end is None:
            raise ConnectionResetError("red-box ended it without a status")

    def _write_outputs(self) -> None:
        for channel, held in self._held.items():
            try:
                send_held(partial(os.write, self._outputs[channel]), held)
            except BrokenPipeError:  # its reader has gone; the command may go on
                held.clear()

    def _drain(self) -> None:
        """What the session wrote last, as long as its reader goes on and the program is there."""
        taken_at = time.monotonic()
        while left := self._held_bytes():
            poll = select.poll()
            poll.register(self._client, select.POLLIN)
            for channel, held in self._held.items():
                if held:
                    poll.register(self._outputs[channel], select.POLLOUT)
            if self._client.fileno() in dict(poll.poll(1000)):
                self._read_client()
            self._write_outputs()
            if self._held_bytes() < left:
                taken_at = time.monotonic()
            elif time.monotonic() - taken_at > UNREAD_S:
                self._end = f"the last {left} bytes were not read for {UNREAD_S:g} s", CANNOT_START
                return

    def _held_bytes(self) -> int:
        return sum(map(len, self._held.values()))


def end_of(raw: bytes) -> tuple[str, int]:
    """What a session's Status says: nothing and the command's exit code, or why it ended otherwise."""
    failure = failure_of(raw)
    if failure is None:
        return "", 0
    if failure.exit_code is not None:
        return "", failure.exit_code
    return f"{failure.reason}: {failure}", CANNOT_START
