"""One agent's life on its pipes: hello, requests to threads, the way out.

Each request has a thread, because what it does may block for as long as a file server is dead; the reader
never waits for any of them. When stdin closes, everything ends but kept submits, which are waited for.
"""

import os
import threading
import time
from typing import Any, BinaryIO, Callable, Dict

from redbox.agents.program.streams import RequestCancelled, WorkerStream
from redbox.agents.program.wire import (
    CANCEL,
    CREDIT,
    DATA,
    DONE,
    END,
    FAILED,
    PING,
    PONG,
    REQUEST,
    FrameWriter,
    MalformedFrame,
    encode_header,
    read_frame,
)

MAX_REQUESTS = 64
IDLE_S = 900.0
LEAVE_S = 150.0  # longer than any kept submit may take
TIDY_S = 2.0  # how long requests have to take back what they began: half a file, a command

Operation = Callable[[WorkerStream], Dict[str, Any]]


class Session:
    """The requests of one server."""

    def __init__(self, source: BinaryIO, descriptor: int, operations: Dict[str, Operation]) -> None:
        self._source = source
        self._writer = FrameWriter(descriptor)
        self._operations = operations
        self._streams: Dict[int, WorkerStream] = {}
        self._changed = threading.Condition()
        self._heard_at = time.monotonic()

    def serve(self) -> None:
        """Read frames until the server has closed, or writes what is no frame."""
        threading.Thread(target=self._leave_when_idle, daemon=True).start()
        try:
            while True:
                self._dispatch(*read_frame(self._source))
        except (EOFError, OSError, MalformedFrame, ValueError):
            self._leave()

    def _dispatch(self, kind: int, number: int, header: Dict[str, Any], payload: bytes) -> None:
        self._heard_at = time.monotonic()
        if kind == REQUEST:
            self._begin(number, header)
        elif kind == PING:
            self._writer.write(PONG, number)
        else:
            with self._changed:
                stream = self._streams.get(number)
            if stream is not None:
                self._pass_on(stream, kind, header, payload)

    def _pass_on(self, stream: WorkerStream, kind: int, header: Dict[str, Any], payload: bytes) -> None:
        if kind == DATA:
            stream.feed(payload)
        elif kind == END:
            stream.end()
        elif kind == CREDIT:
            stream.grant(int(header["bytes"]))
        elif kind == CANCEL:
            stream.cancel()

    def _begin(self, number: int, header: Dict[str, Any]) -> None:
        stream = WorkerStream(number, header, self._writer)
        with self._changed:
            if len(self._streams) >= MAX_REQUESTS:
                self._fail(
                    number, {"kind": "busy", "message": "{} requests are at work".format(MAX_REQUESTS)}
                )
                return
            self._streams[number] = stream
        threading.Thread(target=self._work, args=(stream,), daemon=True).start()

    def _work(self, stream: WorkerStream) -> None:
        try:
            result = self._operations[stream.request["op"]](stream)
        except RequestCancelled:
            self._end(stream, FAILED, {"kind": "cancelled", "message": "cancelled"})
        except OSError as error:
            self._end(stream, FAILED, describe_error(error))
        except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
            message = "{}: {}".format(type(error).__name__, error)
            self._end(stream, FAILED, {"kind": "request", "message": message})
        else:
            self._end(stream, DONE, result)

    def _fail(self, number: int, description: Dict[str, Any]) -> None:
        self._writer.write(FAILED, number, encode_header(description))

    def _end(self, stream: WorkerStream, kind: int, header: Dict[str, Any]) -> None:
        # Forgotten first: a server that has the answer may begin the next request at once.
        with self._changed:
            del self._streams[stream.number]
            self._changed.notify_all()
        self._writer.write(kind, stream.number, encode_header(header))

    def _leave(self) -> None:
        with self._changed:
            streams = list(self._streams.values())
        for stream in streams:
            stream.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._streams, timeout=TIDY_S)
            self._changed.wait_for(lambda: not any(s.kept for s in self._streams.values()), timeout=LEAVE_S)

    def _leave_when_idle(self) -> None:
        while self._streams or time.monotonic() - self._heard_at < IDLE_S:
            time.sleep(IDLE_S / 10)
        os._exit(0)


def describe_error(error: OSError) -> Dict[str, Any]:
    """Return what the kernel said, and of which file."""
    name = error.filename
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    return {
        "kind": "system",
        "errno": error.errno or 0,
        "message": error.strerror or str(error),
        "path": name if isinstance(name, str) else "",
    }
