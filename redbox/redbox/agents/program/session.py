"""The agent's requests: read from stdin, run in threads, ended when stdin closes.

Each request has a thread, since it may block for as long as a file server hangs; the reader never waits for
them. When stdin closes, all requests are cancelled except recorded submits, which run to their end.
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
SHUTDOWN_S = 150.0  # longer than any recorded submit may take
CLEANUP_S = 2.0  # for cancelled requests to clean up: a partial file, a command

Operation = Callable[[WorkerStream], Dict[str, Any]]


class Session:
    """The requests of one server."""

    def __init__(self, source: BinaryIO, descriptor: int, operations: Dict[str, Operation]) -> None:
        self._source = source
        self._writer = FrameWriter(descriptor)
        self._operations = operations
        self._streams: Dict[int, WorkerStream] = {}
        self._changed = threading.Condition()
        self._last_frame_at = time.monotonic()

    def serve(self) -> None:
        """Read frames until stdin is closed or malformed."""
        threading.Thread(target=self._exit_when_idle, daemon=True).start()
        try:
            while True:
                self._dispatch(*read_frame(self._source))
        except (EOFError, OSError, MalformedFrame, ValueError):
            self._shut_down()

    def _dispatch(self, kind: int, number: int, header: Dict[str, Any], payload: bytes) -> None:
        self._last_frame_at = time.monotonic()
        if kind == REQUEST:
            self._begin(number, header)
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
            stream.grant(int(header["bytes"]))
        elif kind == CANCEL:
            stream.cancel()

    def _begin(self, number: int, header: Dict[str, Any]) -> None:
        stream = WorkerStream(number, header, self._writer)
        with self._changed:
            if len(self._streams) >= MAX_REQUESTS:
                message = "{} requests are under way".format(MAX_REQUESTS)
                self._writer.write(FAILED, number, encode_header({"kind": "busy", "message": message}))
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

    def _end(self, stream: WorkerStream, kind: int, header: Dict[str, Any]) -> None:
        # Removed before the answer, upon which the server may send the next request at once.
        with self._changed:
            del self._streams[stream.number]
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

    def _exit_when_idle(self) -> None:
        while self._streams or time.monotonic() - self._last_frame_at < IDLE_S:
            time.sleep(IDLE_S / 10)
        os._exit(0)


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
