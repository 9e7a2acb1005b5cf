"""The console of a container that has stdin or a terminal: a pipe or a pty, its log, and who is attached.

One thread carries a start's console. Output goes to the log first. Each attached client is served from its
own place in what was written, from here as long as it keeps up and from the log where it does not: so the
container waits for no client, and no client waits for another. Input is taken only as the container reads it.

The rules are those of kubelets and containerd: stdin stays open from one client to the next, except that
`stdinOnce` without a terminal closes it with the first client's end; a client whose input ends is detached,
except with `stdinOnce` without a terminal, where it sees the output until the container ends.
"""

import fcntl
import json
import os
import select
import socket
import struct
import termios
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple

from redbox.node.program.attachments import (
    ATTACH_BYTES,
    ATTACH_END,
    ATTACH_HELLO,
    ATTACH_INPUT,
    ATTACH_SIZE,
    ATTACH_STDERR,
    ATTACH_STDOUT,
    MOST_ATTACHED,
    is_own_peer,
    listen_for_clients,
)
from redbox.node.program.outputs import OutputHistory, OutputLost

INPUT_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
FLUSH_S = 2.0
"""After the container's end: how long a client may take nothing of what is left."""
POLL_MS = 1000
WINDOW_SIZE = struct.Struct("HHHH")
LARGEST_CELLS = 0xFFFF
ENDED = {"code": 0}


class Attachment:
    """One client."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.is_greeted = False
        self.has_input = False
        self.place = 0
        self.end: Optional[Dict[str, Any]] = None
        """Sent after the output; then only the client's own end is waited for."""
        self.end_place = 0
        self.is_end_sent = False
        self.is_gone = False

    def finish(self, place: int, document: Dict[str, Any]) -> None:
        """End it after the output up to this place."""
        if self.end is None:
            self.end, self.end_place = document, place

    def has_output(self, history: OutputHistory) -> bool:
        return self.is_greeted and not self.is_end_sent and (self.end is not None or self.place < history.end)

    def send(self, history: OutputHistory) -> bool:
        """Send the next message; whether it was taken."""
        try:
            if self.end is not None and self.place >= self.end_place:
                self.connection.send(ATTACH_END + json.dumps(self.end).encode())
                self.is_end_sent = True
                return True
            channel, data = history.read(self.place)
            self.connection.send(channel + data)
            self.place += len(data)
        except BlockingIOError:
            return False
        except OutputLost:
            self.place = history.end
            message = "output is left out here, since the container's log could not be written or was changed"
            self.end, self.end_place = {"reason": "OutputLost", "message": message}, self.place
        except OSError:
            self.is_gone = True
        return True


class Console:
    """Of one start of a container."""

    def __init__(
        self, folder: str, name: str, log: int, *, stdin: bool = False, once: bool = False, tty: bool = False
    ) -> None:
        """`folder` has the socket; `log` is closed at the end."""
        self.is_terminal = tty
        self._has_stdin = stdin
        self._closes_with_client = stdin and once and not tty
        self._greets_first = once
        self._history = OutputHistory(log)
        self._attached: List[Attachment] = []
        self._input = bytearray()
        self._input_ends = False
        self._outputs: Dict[int, bytes] = {}
        self._stdin = -1
        self.child_files: Tuple[int, ...] = ()
        """What the container's process gets as stdin, stdout and stderr, until `release`."""
        self._has_ended = False
        self._drained = threading.Event()
        self._moved_at = time.monotonic()
        self._path = os.path.join(folder, name)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._open_files(stdin=stdin, tty=tty)
        self._listener = listen_for_clients(folder, name)
        self._thread = threading.Thread(target=self._carry, name="console-" + name, daemon=True)
        self._thread.start()

    def _open_files(self, *, stdin: bool, tty: bool) -> None:
        if tty:
            terminal, theirs = os.openpty()
            self.child_files = (theirs, theirs, theirs)
            self._outputs = {terminal: ATTACH_STDOUT}
            self._stdin = terminal if stdin else -1
        else:
            their_in, self._stdin = os.pipe() if stdin else (os.open(os.devnull, os.O_RDONLY), -1)
            (out, their_out), (error, their_error) = os.pipe(), os.pipe()
            self.child_files = (their_in, their_out, their_error)
            self._outputs = {out: ATTACH_STDOUT, error: ATTACH_STDERR}
        for descriptor in {*self._outputs, self._stdin} - {-1}:
            os.set_blocking(descriptor, False)

    def child_paths(self) -> List[str]:
        """By which another process of the user opens the container's files."""
        return ["/proc/{}/fd/{}".format(os.getpid(), descriptor) for descriptor in self.child_files]

    def release(self) -> None:
        """The container has its files: what closes them is now its end."""
        for descriptor in set(self.child_files):
            os.close(descriptor)
        self.child_files = ()

    def end(self) -> None:
        """The container has ended: return when the log has all that it wrote."""
        self.release()
        if not self._has_ended:
            self._has_ended = True
            with suppress(OSError):
                os.write(self._wake_write, b".")
        self._drained.wait()

    def close(self) -> None:
        """Wait until those who are attached have the rest, too; for those who take nothing, not long.

        It may be called again: its number is another file's by then.
        """
        self._thread.join()
        if self._wake_write >= 0:
            os.close(self._wake_write)
            self._wake_write = -1

    # ------------------------------------------------------------------ the thread

    def _carry(self) -> None:
        try:
            while not self._is_over():
                for descriptor, events in self._poll():
                    self._serve(descriptor, events)
                if self._has_ended and not self._drained.is_set():
                    self._drain()
                self._drop_those_gone()
                self._end_input_if_due()
        finally:
            self._close_all()

    def _is_over(self) -> bool:
        is_late = time.monotonic() - self._moved_at > FLUSH_S
        return self._drained.is_set() and (not self._attached or is_late)

    def _poll(self) -> List[Tuple[int, int]]:
        wanted = {self._wake_read: select.POLLIN, self._listener.fileno(): select.POLLIN}
        wanted.update(dict.fromkeys(self._outputs, select.POLLIN))
        if self._input:
            wanted[self._stdin] = wanted.get(self._stdin, 0) | select.POLLOUT
        for each in self._attached:
            takes_input = each.is_end_sent or not each.is_greeted or len(self._input) < INPUT_BYTES
            events = select.POLLIN if takes_input else 0
            events |= select.POLLOUT if each.has_output(self._history) else 0
            wanted[each.connection.fileno()] = events
        poll = select.poll()
        for descriptor, events in wanted.items():
            if descriptor >= 0:
                poll.register(descriptor, events)
        return poll.poll(POLL_MS if self._drained.is_set() else None)

    def _serve(self, descriptor: int, events: int) -> None:
        if descriptor == self._wake_read:
            os.read(self._wake_read, READ_BYTES)
        elif descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._outputs or descriptor == self._stdin:
            if events & select.POLLOUT and self._input:
                self._write_input()
            if events & ~select.POLLOUT and descriptor in self._outputs:
                self._read_output(descriptor)
        else:
            self._serve_attached(descriptor, events)

    def _serve_attached(self, descriptor: int, events: int) -> None:
        for each in self._attached:
            if each.connection.fileno() != descriptor:
                continue
            if events & ~select.POLLOUT:
                self._receive(each)
            elif each.send(self._history):
                self._moved_at = time.monotonic()

    # ------------------------------------------------------------------ the container's side

    def _read_output(self, descriptor: int) -> bool:
        """Read once; whether there may be more."""
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # of a terminal that no process holds: EIO
            data = b""
        if data:
            self._history.append(self._outputs[descriptor], data)
            return True
        del self._outputs[descriptor]
        if descriptor == self._stdin:
            self._stdin = -1
            self._input.clear()
        os.close(descriptor)
        return False

    def _write_input(self) -> None:
        try:
            written = os.write(self._stdin, self._input[:ATTACH_BYTES])
            del self._input[:written]
        except BlockingIOError:
            pass
        except OSError:  # the container has closed it
            self._close_stdin()

    def _end_input_if_due(self) -> None:
        if self._input_ends and not self._input:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0 and self._stdin not in self._outputs:
            os.close(self._stdin)
        self._stdin = -1
        self._input.clear()

    def _drain(self) -> None:
        """All that has been written; the container has ended, so it is bounded."""
        self._close_stdin()
        for descriptor in list(self._outputs):
            while descriptor in self._outputs and self._read_output(descriptor):
                pass
        self._close_listener()
        for each in self._attached:
            each.finish(self._history.end, ENDED)
        self._moved_at = time.monotonic()
        self._drained.set()

    # ------------------------------------------------------------------ the clients' side

    def _accept(self) -> None:
        try:
            connection = self._listener.accept()[0]
        except OSError:
            return
        if not is_own_peer(connection) or len(self._attached) >= MOST_ATTACHED:
            connection.close()
            return
        connection.settimeout(0)
        self._attached.append(Attachment(connection))

    def _receive(self, client: Attachment) -> None:
        try:
            message = client.connection.recv(ATTACH_BYTES + 1)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            client.is_gone = True
            return
        kind, content = message[:1], message[1:]
        try:
            if not client.is_greeted:
                self._greet(client, kind, content)
            elif kind == ATTACH_INPUT and not client.is_end_sent:
                self._take_input(client, content)
            elif kind == ATTACH_SIZE:
                self._set_size(json.loads(content.decode()))
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            client.is_gone = True  # it does not speak this protocol

    def _greet(self, client: Attachment, kind: bytes, content: bytes) -> None:
        """The first client with input of a `stdinOnce` also sees what was written before: its prompt."""
        if kind != ATTACH_HELLO:
            raise ValueError(kind)
        document = json.loads(content.decode())
        client.has_input = bool(document.get("stdin")) and self._has_stdin
        client.place = self._history.end
        if client.has_input and self._greets_first:
            client.place, self._greets_first = self._history.start, False
        if document.get("size"):
            self._set_size(document["size"], always=True)
        client.is_greeted = True

    def _take_input(self, client: Attachment, content: bytes) -> None:
        if not client.has_input:
            return
        if content:
            if self._stdin >= 0:
                self._input += content
            return
        client.has_input = False
        if self._closes_with_client:
            self._input_ends = True
        else:
            client.finish(self._history.end, ENDED)

    def _set_size(self, size: Dict[str, Any], *, always: bool = False) -> None:
        """`always`: also tell a program that has this size already, so that it draws its screen again."""
        columns, rows = (min(max(int(size.get(name, 0)), 0), LARGEST_CELLS) for name in ("columns", "rows"))
        terminal = next(iter(self._outputs), -1) if self.is_terminal else -1
        if terminal < 0 or not columns or not rows:
            return
        before = WINDOW_SIZE.unpack(fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(WINDOW_SIZE.size)))
        if always and before[:2] == (rows, columns):
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, WINDOW_SIZE.pack(rows, columns - 1, 0, 0))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, WINDOW_SIZE.pack(rows, columns, 0, 0))

    def _drop_those_gone(self) -> None:
        for each in [each for each in self._attached if each.is_gone]:
            self._attached.remove(each)
            each.connection.close()
            if each.has_input and self._closes_with_client:
                self._input_ends = True

    # ------------------------------------------------------------------ the end

    def _close_listener(self) -> None:
        if self._listener.fileno() >= 0:
            with suppress(OSError):
                os.unlink(self._path)
            self._listener.close()

    def _close_all(self) -> None:
        self._close_stdin()
        for descriptor in self._outputs:
            os.close(descriptor)
        self._outputs = {}
        self._close_listener()
        for each in self._attached:
            each.connection.close()
        self._history.close()
        self._drained.set()
        os.close(self._wake_read)
