"""What a process has written, by its place from the first byte on: the newest in memory, all in its log."""

import os
from collections import deque
from typing import Deque, Tuple

RECENT_BYTES = 256 * 1024
RECENT_PIECES = 1024
PIECE_BYTES = 16 * 1024
MIXED = b"\1"
"""The stream of what the log alone has: there they are mixed."""


class OutputLost(Exception):
    """What a reader has not read yet is neither here nor in the log."""


class OutputPiece:
    """Output of one stream in a row."""

    def __init__(self, start: int, channel: bytes) -> None:
        self.start = start
        self.channel = channel
        self.data = bytearray()


class OutputHistory:
    """Each reader keeps its own place."""

    def __init__(self, log: int) -> None:
        self._log = log
        self._log_start = os.fstat(log).st_size
        self._log_is_whole = True
        self._pieces: Deque[OutputPiece] = deque()
        self._held = 0
        self.end = 0

    @property
    def start(self) -> int:
        """The first place that is still here."""
        return self._pieces[0].start if self._pieces else self.end

    def append(self, channel: bytes, data: bytes) -> None:
        self._log_is_whole = write_all(self._log, data) and self._log_is_whole
        last = self._pieces[-1] if self._pieces else None
        if last is None or last.channel != channel or len(last.data) >= PIECE_BYTES:
            last = OutputPiece(self.end, channel)
            self._pieces.append(last)
        last.data += data
        self._held += len(data)
        self.end += len(data)
        while self._held > RECENT_BYTES + len(self._pieces[0].data) or len(self._pieces) > RECENT_PIECES:
            self._held -= len(self._pieces.popleft().data)

    def read(self, place: int) -> Tuple[bytes, bytes]:
        """Stream and bytes from this place on; of what the log alone has, no stream is kept."""
        if place < self.start:
            count = min(PIECE_BYTES, self.start - place)
            data = os.pread(self._log, count, self._log_start + place) if self._log_is_whole else b""
            if not data:
                raise OutputLost
            return MIXED, data
        piece = next(piece for piece in reversed(self._pieces) if piece.start <= place)
        return piece.channel, bytes(piece.data[place - piece.start :][:PIECE_BYTES])

    def close(self) -> None:
        os.close(self._log)


def write_all(file: int, data: bytes) -> bool:
    """Whether the file took it: a full file system must not stop the container."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        return False
    return True
