"""The relay's loop: frames in, streams, frames out; and its end, after which no process of it is left.

It ends when its input ends, when no frame has come for `HEARTBEAT_S`, or when it has had no stream for
`IDLE_S`.
"""

import gc
import os
import selectors
import signal
import time
import tty
from typing import Any, Callable, Dict, List, Set

from redbox.node.program.pipes import enlarge_pipe
from redbox.relay.program.attached import AttachedStream, OrderStream
from redbox.relay.program.children import LIBC, keep_from_children
from redbox.relay.program.frames import (
    CLOSE,
    CREDIT,
    DATA,
    HEARTBEAT_S,
    HELLO,
    KILL,
    MAX_STREAMS,
    OPEN,
    PING,
    PONG,
    RESIZE,
    STATUS,
    BadFrame,
    RelayDecoder,
    RelayFrame,
    frame_bytes,
    read_credit,
    read_order,
    report_bytes,
)
from redbox.relay.program.places import NotEnterable, child_pids
from redbox.relay.program.ports import PortStream
from redbox.relay.program.streams import HANGUP_S, CommandStream, RelayStream, Send

IDLE_S = 60.0
TICK_S = 0.1
QUIET_TICK_S = 5.0
READ_SIZE = 256 * 1024
WRITE_SIZE = 16 * 1024  # a terminal takes less at once, and what it does not take is copied again
SLURM_PIECE = 1024  # of what Slurm passes on at once
GATHER_S = 0.002
MAX_OUTPUT = 2 * 1024 * 1024  # waiting to be sent, beyond which nothing more is read of commands
OOM_SCORE = b"900"  # below the sessions', above the job's
PR_SET_CHILD_SUBREAPER = 36
STREAMS: Dict[str, Callable[[int, Send, Dict[str, Any]], RelayStream]] = {
    "attach": AttachedStream,
    "command": CommandStream,
    "order": OrderStream,
    "port": PortStream,
}


class HungUpGroup:
    """The processes of an ended stream, which got SIGHUP and get SIGKILL."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.until = time.monotonic() + HANGUP_S
        signal_session(leader, signal.SIGHUP)
        signal_session(leader, signal.SIGCONT)


class Relay:
    """All streams of one caller on one node of one job."""

    def __init__(self, source: int, sink: int, idle_s: float, heartbeat_s: float) -> None:
        self._source, self._sink = source, sink
        self._idle_s, self._heartbeat_s = idle_s, heartbeat_s
        self._longest_pause = min(QUIET_TICK_S, idle_s / 2, heartbeat_s / 2)
        self._decoder = RelayDecoder()
        self._streams: Dict[int, RelayStream] = {}
        self._hung_up: List[HungUpGroup] = []
        self._output = bytearray()
        self._ending = self._gathers = False
        self._last_frame = self._last_stream = time.monotonic()
        self._wake, self._waker = os.pipe()
        self._selector = selectors.PollSelector()  # its list is in this process: descriptors may be closed
        self._watched: Dict[int, int] = {}

    def run(self) -> None:
        for descriptor in (self._wake, self._waker, self._sink):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._end())
        self._send(HELLO, 0)
        try:
            while not self._is_over():
                began = time.monotonic()
                self._turn()
                gc.enable()
                if time.monotonic() - began > 2 * self._longest_pause:  # Slurm had stopped it with its job
                    self._last_frame = time.monotonic()
        finally:
            self._end_all()

    def _end(self) -> None:
        self._ending = True

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._streams:
            self._last_stream = now
        return (
            self._ending
            or now - self._last_frame > self._heartbeat_s
            or now - self._last_stream > self._idle_s
        )

    def _turn(self) -> None:
        """Wait for what can be read or written, do that, and what is due."""
        owners: Dict[int, RelayStream] = {}
        self._watch(self._wanted_events(owners))
        for key, events in self._selector.select(self._pause()):
            self._handle(key.fd, events, owners)
        self._reap()
        self._kill_hung_up()
        for stream in list(self._streams.values()):
            stream.tick()
            if stream.is_over:
                self._forget(stream)
        self._flush()

    def _wanted_events(self, owners: Dict[int, RelayStream]) -> Dict[int, int]:
        """Of each descriptor; those of streams get their owners."""
        wanted = {self._wake: selectors.EVENT_READ}
        if len(self._output) < MAX_OUTPUT:
            wanted[self._source] = selectors.EVENT_READ
            for stream in self._streams.values():
                for descriptor, events in stream.interests():
                    owners[descriptor] = stream
                    wanted[descriptor] = events
        if self._output:  # the input and the output may be one socket
            wanted[self._sink] = wanted.get(self._sink, 0) | selectors.EVENT_WRITE
        return wanted

    def _watch(self, wanted: Dict[int, int]) -> None:
        for descriptor in self._watched.keys() - wanted.keys():
            self._selector.unregister(descriptor)
        for descriptor, events in wanted.items():
            if descriptor not in self._watched:
                self._selector.register(descriptor, events)
            elif events != self._watched[descriptor]:
                self._selector.modify(descriptor, events)
        self._watched = wanted

    def _pause(self) -> float:
        busy = self._hung_up or any(stream.is_timed() for stream in self._streams.values())
        return min(TICK_S, self._longest_pause) if busy else self._longest_pause

    def _handle(self, descriptor: int, events: int, owners: Dict[int, RelayStream]) -> None:
        if descriptor in owners:
            owners[descriptor].ready(descriptor, events)
        elif descriptor == self._wake:
            os.read(self._wake, 4096)
        elif descriptor == self._source and events & selectors.EVENT_READ:
            self._receive()

    def _receive(self) -> None:
        """Take what has come; after a whole piece of Slurm's more is coming, and is gathered."""
        if self._gathers:
            time.sleep(GATHER_S)
        try:
            data = os.read(self._source, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self._gathers = len(data) >= SLURM_PIECE
        self._last_frame = time.monotonic()
        try:
            for frame in self._decoder.feed(data):
                self._dispatch(frame)
        except (BadFrame, AttributeError, KeyError, TypeError, ValueError, OverflowError):
            self._end()  # the rest cannot be read

    def _dispatch(self, frame: RelayFrame) -> None:
        if frame.kind == PING:
            self._send(PONG, 0)
        elif frame.kind == OPEN:
            self._open(frame.stream, read_order(frame.payload))
        elif frame.stream in self._streams:
            self._deliver(self._streams[frame.stream], frame)

    def _deliver(self, stream: RelayStream, frame: RelayFrame) -> None:
        if frame.kind == DATA:
            stream.feed(frame.payload)
        elif frame.kind == CREDIT:
            stream.grant(read_credit(frame.payload))
        elif frame.kind == CLOSE:
            stream.close_input()
        elif frame.kind == RESIZE:
            stream.resize(read_order(frame.payload))
        elif frame.kind == KILL:
            stream.kill()
            self._forget(stream)

    def _open(self, number: int, document: Dict[str, Any]) -> None:
        if number in self._streams or len(self._streams) >= MAX_STREAMS:
            raise BadFrame("a stream that is open, or too many")
        self._last_stream = time.monotonic()  # also one that is refused at once: its client tries again
        kind = STREAMS[document["kind"]]
        try:
            stream = kind(number, self._send, document)
        except (NotEnterable, OSError) as refusal:
            status = {"reason": "CannotStart", "message": str(refusal)}
            self._send(STATUS, number, report_bytes(status))
            return
        if not stream.is_over:
            self._streams[number] = stream

    def _forget(self, stream: RelayStream) -> None:
        self._streams.pop(stream.number, None)
        self._last_stream = time.monotonic()
        leader = stream.group()
        if leader is not None:
            self._hung_up.append(HungUpGroup(leader))

    def _send(self, kind: int, number: int, payload: bytes = b"") -> None:
        self._output += frame_bytes(kind, number, payload)

    def _flush(self) -> None:
        try:
            while self._output:
                written = os.write(self._sink, self._output[:WRITE_SIZE])
                del self._output[:written]
        except BlockingIOError:
            pass
        except OSError:
            self._end()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            for stream in self._streams.values():
                stream.exited(pid, code)

    def _kill_hung_up(self) -> None:
        now = time.monotonic()
        for group in [group for group in self._hung_up if group.until <= now]:
            if signal_session(group.leader, signal.SIGKILL):
                self._hung_up.remove(group)

    def _end_all(self) -> None:
        """Leave no process behind: the sessions', and what they left in sessions of its own."""
        self._flush()
        for stream in list(self._streams.values()):
            stream.kill()
            self._forget(stream)
        until = time.monotonic() + HANGUP_S
        while time.monotonic() < until and child_pids(os.getpid()):
            self._reap()
            time.sleep(0.02)
        for _ in range(3):  # one of them may have been forking
            for pid in descendants(os.getpid()):
                send_signal_to(pid, signal.SIGKILL)
            self._reap()


def signal_session(leader: int, number: int) -> bool:
    """Signal each process of the leader's session, whichever group its shell put it in.

    False where no descriptor is left to list them by: connections may have all that this user is allowed.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        return False
    for name in names:
        if name.isdigit():
            try:
                if os.getsid(int(name)) == leader:
                    os.kill(int(name), number)
            except OSError:
                continue
    return True


def descendants(pid: int) -> Set[int]:
    found: Set[int] = set()
    generation = child_pids(pid)
    while generation:
        found.update(generation)
        generation = [child for parent in generation for child in child_pids(parent) if child not in found]
    return found


def send_signal_to(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def prepare_process(sink: int) -> None:
    """Adopt what sessions leave behind; be killed before the job; send bytes as they are."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(OOM_SCORE)
    except OSError:
        pass
    if os.isatty(sink):  # srun -u makes it one
        tty.setraw(sink)


def main(idle_s: float = IDLE_S, heartbeat_s: float = HEARTBEAT_S) -> None:
    prepare_process(1)
    keep_from_children()
    enlarge_pipe(0)
    Relay(0, 1, idle_s, heartbeat_s).run()
    os._exit(0)


if __name__ == "__main__":
    main()
