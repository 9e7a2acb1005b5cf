"""The agent's requests: read from stdin, run in threads, ended when stdin closes.

Each request has a thread, since it may block for as long as a file server hangs; the reader never waits for
them. A thread whose request has ended takes the next one: starting another costs as much as a small request.
Of a request's `WorkerStream` the reader calls `grant`, `feed`, `end` and `cancel`, which do not block;
the thread calls the rest. When stdin closes, all requests are cancelled except recorded submits, which run to
their end.
"""

import errno
import os
import queue
import threading
import time
from collections import deque
from typing import Any, BinaryIO, Callable, Deque, Dict, Optional

from redbox.agents.program.wire import (
    CANCEL,
    CREDIT,
    DATA,
    DONE,
    END,
    EVENT,
    FAILED,
    PING,
    PONG,
    REQUEST,
    WINDOW,
    FrameWriter,
    MalformedFrame,
    encode_header,
    frame_cost,
    read_frame,
)
from redbox_shared.credit import ReceiveCredit

MAX_REQUESTS = 64
IDLE_S = 900.0
SHUTDOWN_S = 150.0  # longer than any recorded submit may take
CLEANUP_S = 2.0  # for cancelled requests to clean up: a partial file, a command


class RequestCancelled(Exception):
    """The server has cancelled the request."""


class WorkerStream:
    """A request, its input and its output."""

    def __init__(self, number: int, request: Dict[str, Any], first_input: bytes, writer: FrameWriter) -> None:
        self.number = number
        self.request = request
        self.first_input = first_input  # came with the request, and costs no credit
        self.is_recorded = False  # runs to its end even when cancelled
        self._writer = writer
        self._changed = threading.Condition()
        self._credit = WINDOW
        self._input: Deque[bytes] = deque()
        self._received = ReceiveCredit(WINDOW)
        self._input_ended = False
        self._cancelled = False
        self._on_cancel: Optional[Callable[[], None]] = None

    def grant(self, credit: int) -> None:
        with self._changed:
            self._credit += credit
            self._changed.notify_all()

    def feed(self, data: bytes) -> None:
        with self._changed:
            if not self._received.receive(frame_cost(b"", data)):
                raise MalformedFrame("more input than its credit")
            self._input.append(data)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._input_ended = True
            self._changed.notify_all()

    def cancel(self) -> None:
        with self._changed:
            self._cancelled = True
            on_cancel = self._on_cancel
            self._changed.notify_all()
        if on_cancel:
            on_cancel()

    def keep_running(self) -> None:
        """From here on the request runs to its end, even without a server."""
        with self._changed:
            if self._cancelled:
                raise RequestCancelled
            self.is_recorded = True

    def call_when_cancelled(self, on_cancel: Callable[[], None]) -> None:
        """Call this upon cancellation; at once if the request is cancelled already."""
        with self._changed:
            self._on_cancel = on_cancel
            cancelled = self._cancelled
        if cancelled:
            on_cancel()

    def receive(self) -> bytes:
        """Return the next chunk of input, b"" at its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._input or self._input_ended or self._cancelled)
            if self._cancelled:
                raise RequestCancelled
            if not self._input:
                return b""
            data = self._input.popleft()
            granted = self._received.consume(frame_cost(b"", data))
        if granted:
            self._writer.write(CREDIT, self.number, encode_header({"bytes": granted}))
        return data

    def send(self, payload: bytes, header: Optional[Dict[str, Any]] = None) -> None:
        self._send(DATA, encode_header(header), payload)

    def send_event(self, header: Dict[str, Any]) -> None:
        self._send(EVENT, encode_header(header), b"")

    def _send(self, kind: int, header: bytes, payload: bytes) -> None:
        cost = frame_cost(header, payload)
        with self._changed:
            self._changed.wait_for(lambda: self._credit >= cost or self._cancelled)
            if self._cancelled:
                raise RequestCancelled
            self._credit -= cost
        self._writer.write(kind, self.number, header, payload)


Operation = Callable[[WorkerStream], Dict[str, Any]]


class Session:
    """The requests of one server."""

    def __init__(self, source: BinaryIO, descriptor: int, operations: Dict[str, Operation]) -> None:
        self._source = source
        self._writer = FrameWriter(descriptor)
        self._operations = operations
        self._streams: Dict[int, WorkerStream] = {}
        self._begun: "queue.Queue[WorkerStream]" = queue.Queue()  # for the threads
        self._idle_threads = 0  # that no stream is meant for yet
        self._changed = threading.Condition()
        self._last_frame_at = time.monotonic()

    def serve(self) -> None:
        """Read frames until stdin is closed or malformed."""
        try:
            while True:
                self._dispatch(*read_frame(self._source))
        except (EOFError, OSError, MalformedFrame):
            self._shut_down()

    def _dispatch(self, kind: int, number: int, header: Dict[str, Any], payload: bytes) -> None:
        self._last_frame_at = time.monotonic()
        if kind == REQUEST:
            self._begin(number, header, payload)
        elif kind == PING:
            self._writer.write(PONG, number)
        else:
            with self._changed:
                stream = self._streams.get(number)
            if stream is not None:
                self._deliver(stream, kind, header, payload)

    def _deliver(self, stream: WorkerStream, kind: int, header: Dict[str, Any], payload: bytes) -> None:
        if kind == DATA:
            stream.feed(payload)
        elif kind == END:
            stream.end()
        elif kind == CREDIT:
            if type(header.get("bytes")) is not int:
                raise MalformedFrame("credit without its bytes")
            stream.grant(header["bytes"])
        elif kind == CANCEL:
            stream.cancel()

    def _begin(self, number: int, header: Dict[str, Any], payload: bytes) -> None:
        stream = WorkerStream(number, header, payload, self._writer)
        with self._changed:
            if number in self._streams:
                raise MalformedFrame("a request whose number is taken")
            if len(self._streams) >= MAX_REQUESTS:
                self._refuse(number, "{} requests are under way".format(MAX_REQUESTS))
                return
            self._streams[number] = stream
            is_awaited = self._idle_threads > 0
            self._idle_threads -= is_awaited
        try:
            if not is_awaited:
                start_thread(self._work)
        except OSError as error:
            with self._changed:
                del self._streams[number]
            self._refuse(number, str(error))
        else:
            self._begun.put(stream)

    def _refuse(self, number: int, message: str) -> None:
        self._writer.write(FAILED, number, encode_header({"kind": "busy", "message": message}))

    def _work(self) -> None:
        while True:  # without a variable: an idle thread keeps no request, in which secrets may be
            self._perform(self._begun.get())

    def _perform(self, stream: WorkerStream) -> None:
        try:
            result = self._operations[stream.request["op"]](stream)
        except RequestCancelled:
            self._end(stream, FAILED, {"kind": "cancelled", "message": "cancelled"})
        except OSError as error:
            self._end(stream, FAILED, describe_error(error))
        except Exception as error:  # noqa: BLE001 # else its place is taken until the agent ends
            message = "{}: {}".format(type(error).__name__, error)
            self._end(stream, FAILED, {"kind": "request", "message": message})
        else:
            self._end(stream, DONE, result)

    def _end(self, stream: WorkerStream, kind: int, header: Dict[str, Any]) -> None:
        # Removed before the answer, upon which the server may send the next request at once.
        with self._changed:
            del self._streams[stream.number]
            self._idle_threads += 1
            self._changed.notify_all()
        self._writer.write(kind, stream.number, encode_header(header))

    def _shut_down(self) -> None:
        with self._changed:
            streams = list(self._streams.values())
        for stream in streams:
            stream.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._streams, timeout=CLEANUP_S)
            self._changed.wait_for(
                lambda: not any(s.is_recorded for s in self._streams.values()), timeout=SHUTDOWN_S
            )

    def exit_when_idle(self) -> None:
        """End the process, and not only the session: its thread reads until then."""
        while self._streams or time.monotonic() - self._last_frame_at < IDLE_S:
            time.sleep(IDLE_S / 10)
        os._exit(0)


def start_thread(work: Callable[[], object]) -> None:
    """OSError at the user's limit of processes, which counts threads."""
    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError as error:
        raise OSError(
            errno.EAGAIN, "{} (the limit of this user's processes: ulimit -u)".format(error)
        ) from None


def describe_error(error: OSError) -> Dict[str, Any]:
    name = error.filename
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    return {
        "kind": "system",
        "errno": error.errno or 0,
        "message": error.strerror or str(error),
        "path": name if isinstance(name, str) else "",
    }
