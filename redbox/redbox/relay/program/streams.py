"""What a relay carries: commands in a terminal or with pipes; `ports` adds connections.

All of them share one thread, so nothing here waits: a stream says by `wants` which of its descriptors it
can read or write now, and the loop calls it back. A stream without credit reads nothing more of its
command.
"""

import contextlib
import errno
import fcntl
import os
import selectors
import socket
import termios
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, Optional, Tuple

from redbox.node.program.pipes import enlarge_pipe
from redbox.relay.program.children import (
    LARGEST_REPORT,
    PLACED,
    REFUSED,
    ChildProgram,
    close_quietly,
    exit_document,
    open_pipe,
    prepare_session,
    start_child,
    word_bytes,
)
from redbox.relay.program.frames import (
    CREDIT,
    CREDIT_BYTES,
    DATA,
    FRAME_COST,
    INPUT_WINDOW,
    MAX_DATA,
    OUTPUT_WINDOW,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    BadFrame,
    Buffer,
    data_cost,
    report_bytes,
)
from redbox.relay.program.places import find_surroundings
from redbox.relay.program.terminals import is_hung_up, set_terminal_size
from redbox_shared.credit import ReceiveCredit

Interest = Tuple[int, int]  # a descriptor, and the selectors' events
Send = Callable[[int, int, bytes], None]
ORPHANS_S = 0.3  # after the command's end: how long output of processes that it left behind is waited for
LEAST_READ = 4096
STDIN_PIPE = 256 * 1024  # the system counts it, and gives a user 64 MiB
HANGUP_S = 1.0  # between SIGHUP and SIGKILL
CANNOT_EXECUTE, NOT_FOUND = 126, 127
PLACED_S = 15.0
HANGS = (
    "A process of the job on node {} did not answer within {:.0f} s: it waits in the kernel, as a rule for a "
    "file system that does not answer, and ps on the node shows it in state D."
)


class RelayStream:
    """One stream: its input, its credit, and its one status at the end."""

    def __init__(self, number: int, send: Send) -> None:
        self.number = number
        self.is_over = False
        self._send_frame = send
        self._credit = OUTPUT_WINDOW
        self._input: Deque[Buffer] = deque()
        self._received = ReceiveCredit(INPUT_WINDOW)
        self._input_closed = False

    def feed(self, payload: bytes) -> None:
        if payload[:1] != bytes([STDIN]):
            raise BadFrame("input of another channel")
        if not self._received.receive(data_cost(len(payload) - 1)):
            raise BadFrame("more input than its credit")
        self._input.append(memoryview(payload)[1:])

    def close_input(self) -> None:
        self._input_closed = True

    def grant(self, credit: int) -> None:
        self._credit = min(self._credit + credit, OUTPUT_WINDOW)

    def may_read(self) -> bool:
        return self._credit >= LEAST_READ

    def resize(self, size: Dict[str, Any]) -> None:
        """Set the size of a terminal; nothing else has one."""

    def is_timed(self) -> bool:
        """Whether something may become due without any descriptor's doing."""
        return False

    def group(self) -> Optional[int]:
        """The leader of the stream's processes."""
        return None

    def interests(self) -> Iterator[Interest]:
        return iter(())

    def ready(self, descriptor: int, events: int) -> None:
        """Read or write what can be."""

    def tick(self) -> None:
        """Look whether something is due."""

    def exited(self, pid: int, status: int) -> None:
        """Note the end of a child process, if it is this stream's."""

    def kill(self) -> None:
        """End at once; nothing is sent any more."""
        self.is_over = True

    def finish(self, document: Dict[str, Any]) -> None:
        if not self.is_over:
            self.is_over = True
            self._send_frame(STATUS, self.number, report_bytes(document))

    def _read(self, descriptor: int, channel: int) -> bool:
        """Pass on what there is, if there is credit: another descriptor of the stream may just have used it.

        Return False at the end.
        """
        if not self.may_read():
            return True
        try:
            data = os.read(descriptor, min(MAX_DATA, self._credit - FRAME_COST))
        except BlockingIOError:
            return True
        except OSError as error:  # of a terminal without a holder: EIO
            self._failed(error)
            data = b""
        if data:
            self._credit -= data_cost(len(data))
            self._send_frame(DATA, self.number, bytes([channel]) + data)
        return bool(data)

    def _write(self, descriptor: int) -> bool:
        """Pass on as much input as the command takes now; return False once it has closed it."""
        try:
            while self._input:
                chunk = self._input[0]
                written = os.write(descriptor, chunk)
                if written < len(chunk):
                    self._input[0] = chunk[written:]
                    self._consumed(written)
                else:
                    self._input.popleft()
                    self._consumed(data_cost(written))
        except BlockingIOError:
            return True
        except OSError as error:
            self._failed(error)
            self._drop_input()
            return False
        return True

    def _failed(self, error: OSError) -> None:
        """Note why nothing can be read, or written, any more."""

    def _drop_input(self) -> None:
        self._consumed(sum(data_cost(len(chunk)) for chunk in self._input))
        self._input.clear()

    def _consumed(self, count: int) -> None:
        granted = self._received.consume(count)
        if granted:
            self._send_frame(CREDIT, self.number, CREDIT_BYTES.pack(granted))


class SocketStream(RelayStream):
    """A stream at a socket, which ends with it."""

    _socket: Optional["socket.socket"] = None

    def kill(self) -> None:
        super().kill()
        self._release()

    def _release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._input.clear()


class CommandStream(RelayStream):
    """A command of the user, in a process group, and a session, of its own."""

    def __init__(self, number: int, send: Send, document: Dict[str, Any]) -> None:
        super().__init__(number, send)
        self._tty = bool(document["tty"])
        self._leader: Optional[int] = None
        self._outputs: Dict[int, int] = {}
        self._status: Optional[int] = None
        self._ended_at = 0.0
        self._stdin = -1
        self._is_deserted = False  # a terminal, which no process has open now
        self._starting = -1  # a pipe, until the program runs
        self._placed_until = time.monotonic() + PLACED_S
        self._is_placed = False
        self._program = word_bytes(document["command"][0])
        self._start(document)

    def _start(self, document: Dict[str, Any]) -> None:
        relay, command = os.getpid(), [word_bytes(word) for word in document["command"]]

        def plan() -> ChildProgram:
            place = find_surroundings(document["job"], document.get("container"), relay)
            environment = dict(place.environment)
            if self._tty:
                environment[b"TERM"] = word_bytes(document.get("term") or "xterm")
            if place.notice:
                os.write(STDOUT if self._tty else STDERR, place.notice)
            return ChildProgram(place.enter + command, environment, place.folder)

        start = self._start_in_terminal if self._tty else self._start_with_pipes
        try:
            start(plan, document)
        except OSError as error:
            self._fail_to_start(error.errno or 0, str(error))

    def _fail_to_start(self, number: int, why: str = "") -> None:
        code = NOT_FOUND if number == errno.ENOENT else CANNOT_EXECUTE
        why = os.strerror(number) if number else why  # of a pty there is no number
        message = f"{self._program.decode('utf-8', 'surrogateescape')[:200]}: {why}"
        self._send_notice(word_bytes(f"redbox: {message}\r\n"))  # kubectl shows no other
        self.finish({"code": code, "message": message})
        self._release()

    def _see_start(self) -> None:
        """The program runs, or why it does not."""
        report = os.read(self._starting, LARGEST_REPORT)
        if report.startswith(PLACED):
            self._is_placed, report = True, report[len(PLACED) :]
            if not report:
                return
        close_quietly(self._starting)
        self._starting = -1
        if report.startswith(REFUSED):
            self._refuse(report[len(REFUSED) :].decode("utf-8", "replace"))
        elif report:
            self._fail_to_start(int(report))

    def _refuse(self, message: str) -> None:
        self.finish({"reason": "CannotStart", "message": message})
        self._release()

    def _send_notice(self, line: bytes) -> None:
        """A line of ours, where the command's errors are seen."""
        self._credit -= data_cost(len(line))
        self._send_frame(DATA, self.number, bytes([STDOUT if self._tty else STDERR]) + line)

    def _start_in_terminal(self, plan: Callable[[], ChildProgram], document: Dict[str, Any]) -> None:
        master, slave = os.openpty()
        try:
            set_terminal_size(master, document.get("size") or {})

            def take_terminal() -> None:
                prepare_session()
                fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

            files = (slave, slave, slave)
            self._leader, self._starting = start_child(plan, files, take_terminal)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        os.set_blocking(master, False)
        self._outputs[master] = STDOUT
        self._stdin = master

    def _start_with_pipes(self, plan: Callable[[], ChildProgram], document: Dict[str, Any]) -> None:
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            their_in, our_in = open_pipe(theirs, ours if document["stdin"] else theirs)
            our_out, their_out = open_pipe(ours, theirs)
            our_err, their_err = open_pipe(ours, theirs)
            if document["stdin"]:  # a turn of the relay, with its pauses, fills it once
                enlarge_pipe(our_in, STDIN_PIPE)
            files = (their_in, their_out, their_err)
            self._leader, self._starting = start_child(plan, files, prepare_session)
            ours.pop_all()
        self._outputs = {our_out: STDOUT, our_err: STDERR}
        self._stdin = our_in if document["stdin"] else -1
        for descriptor in (our_out, our_err, self._stdin):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)

    def resize(self, size: Dict[str, Any]) -> None:
        if self._tty and self._stdin >= 0:
            set_terminal_size(self._stdin, size)

    def interests(self) -> Iterator[Interest]:
        if self._starting >= 0:
            yield self._starting, selectors.EVENT_READ
        for descriptor in () if self._is_deserted else self._outputs:
            events = selectors.EVENT_READ if self.may_read() else 0
            if descriptor == self._stdin and self._input:
                events |= selectors.EVENT_WRITE
            if events:
                yield descriptor, events
        if self._stdin >= 0 and self._stdin not in self._outputs and self._input:
            yield self._stdin, selectors.EVENT_WRITE

    def ready(self, descriptor: int, events: int) -> None:
        if descriptor == self._starting:
            self._see_start()
            return
        if events & selectors.EVENT_WRITE and self._input and not self._write(descriptor) and not self._tty:
            self._close_stdin()
        if events & selectors.EVENT_READ and descriptor in self._outputs:
            if not self._read(descriptor, self._outputs[descriptor]):
                self._end_output(descriptor)
            elif self._status is not None:
                self._ended_at = time.monotonic()

    def tick(self) -> None:
        if self._stdin < 0 and self._input:
            self._drop_input()
        if self._input_closed and not self._input and self._stdin >= 0:
            self._end_input()
        if self._is_deserted:
            self._is_deserted = self._status is None and is_hung_up(self._stdin)
        if self._hangs() and time.monotonic() > self._placed_until:
            self._refuse(HANGS.format(os.uname()[1], PLACED_S))
        if self._status is None or self._starting >= 0:
            return
        if not self._outputs or (self._has_waited() and not self._read_rest()):
            self.finish(exit_document(self._status))
            self._release()

    def _has_waited(self) -> bool:
        return self.may_read() and time.monotonic() - self._ended_at > ORPHANS_S

    def _read_rest(self) -> bool:
        """Whether there was something: without credit, or room in the relay's output, nothing was read."""
        before = self._credit
        for descriptor in list(self._outputs):
            self.ready(descriptor, selectors.EVENT_READ)
        return self._credit < before

    def exited(self, pid: int, status: int) -> None:
        if pid == self._leader:
            self._status, self._ended_at = status, time.monotonic()

    def kill(self) -> None:
        super().kill()
        self._release()

    def group(self) -> Optional[int]:
        return self._leader

    def is_timed(self) -> bool:
        return self._status is not None or self._is_deserted or self._hangs()

    def _hangs(self) -> bool:
        return self._starting >= 0 and not self._is_placed

    def _end_input(self) -> None:
        """End of file: for a terminal as a key, since its other direction stays open."""
        self._input_closed = False
        if self._tty:
            end = b"\x04\x04"  # where a line has begun the first one ends that line
            self._input.append(end)
            self._received.receive(data_cost(len(end)))
        else:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0 and self._stdin not in self._outputs:
            close_quietly(self._stdin)
        self._stdin = -1
        self._drop_input()

    def _end_output(self, descriptor: int) -> None:
        """A command may close a terminal before its own end, as cat does: closed here too it means SIGHUP."""
        if self._tty and self._status is None:
            self._is_deserted = True
            return
        del self._outputs[descriptor]
        if descriptor == self._stdin:
            self._stdin = -1
        close_quietly(descriptor)

    def _release(self) -> None:
        for descriptor in {*self._outputs, self._stdin, self._starting}:
            close_quietly(descriptor)
        self._outputs, self._stdin, self._starting = {}, -1, -1
        self._input.clear()
