"""At a runner's socket: the main process of a container, whose console the runner holds, and its orders."""

import json
import os
import selectors
import socket
import stat
from typing import Any, Dict, Iterator, List, Optional, Tuple

from redbox.node.program.attachments import (
    ATTACH_BYTES,
    ATTACH_END,
    ATTACH_FOLDER,
    ATTACH_HELLO,
    ATTACH_INPUT,
    ATTACH_SIZE,
    ATTACH_STDERR,
    ATTACH_STDOUT,
    ORDERS,
    SCRATCH_PREFIX,
    peer_of,
)
from redbox.relay.program.frames import DATA, data_cost
from redbox.relay.program.places import NotEnterable, job_processes, open_files
from redbox.relay.program.streams import Interest, Send, SocketStream

NO_CONSOLE = (
    "Container {} has no stdin and no terminal to attach to now: it runs without them, waits for its start, "
    "or has ended."
)
NO_ORDERS = (
    "The runner of this pod does not take orders: it has just begun, is ending, or is of an earlier release "
    "than red-box."
)
LOST = {"reason": "ContainerLost", "message": "the runner of the container has ended"}


class AttachedStream(SocketStream):
    """A client of a container's console."""

    def __init__(self, number: int, send: Send, document: Dict[str, Any]) -> None:
        super().__init__(number, send)
        self._socket = self._connect(document)
        hello = {"stdin": bool(document["stdin"]), "size": document.get("size")}
        self._messages: List[bytes] = [ATTACH_HELLO + json.dumps(hello).encode()]
        """To be sent before any input."""

    def _connect(self, document: Dict[str, Any]) -> "Optional[socket.socket]":
        container = document["container"]
        return find_socket(document["job"], container, NO_CONSOLE.format(container))

    def resize(self, size: Dict[str, Any]) -> None:
        """Of sizes that wait, the newest counts."""
        self._messages = [message for message in self._messages if message[:1] != ATTACH_SIZE]
        self._messages.append(ATTACH_SIZE + json.dumps(size).encode())

    def may_read(self) -> bool:
        """Whether the largest message has room: what is not read of a message is lost."""
        return self._credit >= data_cost(ATTACH_BYTES)

    def interests(self) -> Iterator[Interest]:
        if self._socket is None:
            return
        events = selectors.EVENT_READ if self.may_read() else 0
        if self._messages or self._input or self._input_closed:
            events |= selectors.EVENT_WRITE
        if events:
            yield self._socket.fileno(), events

    def ready(self, descriptor: int, events: int) -> None:  # noqa: ARG002 # it has one descriptor
        if events & selectors.EVENT_WRITE:
            self._send_next()
        if events & selectors.EVENT_READ:
            self._receive()

    def _send_next(self) -> None:
        if self._messages:
            if self._sent(self._messages[0]):
                del self._messages[0]
        elif self._input:
            self._send_input()
        elif self._input_closed and self._sent(ATTACH_INPUT):
            self._input_closed = False

    def _send_input(self) -> None:
        chunk = self._input[0][:ATTACH_BYTES]
        if self._sent(ATTACH_INPUT + chunk):
            rest = self._input[0][len(chunk) :]
            if rest:
                self._input[0] = rest
                self._consumed(len(chunk))
            else:
                self._input.popleft()
                self._consumed(data_cost(len(chunk)))

    def _sent(self, message: bytes) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.send(message)
        except BlockingIOError:
            return False
        except OSError:  # what it wrote before its end is still to be read
            return True
        return True

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            message = self._socket.recv(ATTACH_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        kind, content = message[:1], message[1:]
        if kind in (ATTACH_STDOUT, ATTACH_STDERR):
            self._credit -= data_cost(len(content))
            self._send_frame(DATA, self.number, message)
            return
        self.finish(json.loads(content.decode()) if kind == ATTACH_END else LOST)
        self._release()


class OrderStream(AttachedStream):
    """An order to the runner: a container to begin. Its end is the runner's answer."""

    def __init__(self, number: int, send: Send, document: Dict[str, Any]) -> None:
        super().__init__(number, send, {"job": document["job"], "stdin": True})
        order = document["order"].encode()
        pieces = [order[start : start + ATTACH_BYTES] for start in range(0, len(order), ATTACH_BYTES)]
        self._messages += [ATTACH_INPUT + piece for piece in (*pieces, b"")]

    def _connect(self, document: Dict[str, Any]) -> "Optional[socket.socket]":
        return find_socket(document["job"], ORDERS, NO_ORDERS)


def find_socket(job: str, name: str, missing: str) -> "socket.socket":
    """Connect to a socket of the job's runner."""
    for pid, path in find_sockets(job, name):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(0)
        try:
            connection.connect(path)
            if peer_of(connection) == (pid, os.getuid()):
                return connection
        except OSError:
            pass
        connection.close()
    raise NotEnterable(missing)


def find_sockets(job: str, name: str) -> Iterator[Tuple[int, str]]:
    """In the folder of the job's runner, which alone holds it open outside of containers."""
    for pid, folder, link in open_files(job_processes(job, os.getpid())):
        path = "{}/{}/{}".format(folder, ATTACH_FOLDER, name)
        if os.path.basename(link).startswith(SCRATCH_PREFIX) and is_socket(path):
            yield pid, path


def is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
