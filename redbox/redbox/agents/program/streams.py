"""One request, as its worker thread uses it: input and output with credit, cancellation.

The session's reader calls `grant`, `feed`, `end` and `cancel`, which do not block; the worker calls the rest.
"""

import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional

from redbox.agents.program.wire import (
    CREDIT,
    DATA,
    EVENT,
    WINDOW,
    FrameWriter,
    MalformedFrame,
    encode_header,
    frame_cost,
)


class RequestCancelled(Exception):
    """The server has cancelled the request."""


class WorkerStream:
    """A request, its input and its output."""

    def __init__(self, number: int, request: Dict[str, Any], writer: FrameWriter) -> None:
        self.number = number
        self.request = request
        self.is_recorded = False  # runs to its end even when cancelled
        self._writer = writer
        self._changed = threading.Condition()
        self._credit = WINDOW
        self._input: Deque[bytes] = deque()
        self._input_length = 0
        self._input_ended = False
        self._cancelled = False
        self._on_cancel: Optional[Callable[[], None]] = None

    def grant(self, credit: int) -> None:
        with self._changed:
            self._credit += credit
            self._changed.notify_all()

    def feed(self, data: bytes) -> None:
        with self._changed:
            self._input.append(data)
            self._input_length += frame_cost(b"", data)
            if self._input_length > WINDOW:
                raise MalformedFrame("more input than its credit")
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
            self._input_length -= frame_cost(b"", data)
        self._writer.write(CREDIT, self.number, encode_header({"bytes": frame_cost(b"", data)}))
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
