"""Copying one of the job's streams to one of ours, byte by byte, without loss or doubling.

A position is the *generation* of the file (a requeue begins a new one) and the offset in it; every request
contains both. After a response that ended or was cut off, the next request asks for the next byte, until
red-box answers 204: the job is final and there are no more bytes.
"""

from __future__ import annotations

import fcntl
import os
import select
import stat
import sys
import termios
import threading
import time
from http import HTTPStatus

from redbox_companion.redbox_client import AnswerStream, BlockingClient, RedboxUnreachable
from redbox_companion.retrier import Retrier
from redbox_shared.wire import GENERATION_HEADER, OFFSET_HEADER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

PIECE = 65536
EMPTY_PAUSE_S = 0.2  # red-box waits for the first byte; this is in case it does not
UNREAD_PAUSE_S = 0.001
READ_WITHIN_S = 10.0
PASSED_ON_S = 0.02  # what was read of us is passed on through a second pipe, which we do not see


class LogUnreadable(Exception):
    """Red-box refuses to read this log, and retrying does not help."""


class OutputClosed(Exception):
    """Our own stream cannot be written to any more."""


class OutputStream:
    """One of our own streams."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._order: WriteOrder | None = None
        self.in_mid_line = False

    def write(self, piece: bytes) -> None:
        """All of it, however long the reader takes: while it does not read, we do not read either."""
        if self._order:
            self._order.wait_for(self)
        view = memoryview(piece)
        while view:
            try:
                count = os.write(self._descriptor, view)
            except OSError as error:
                raise OutputClosed(f"it cannot be written to: {error.strerror}") from error
            view = view[count:]
        self.in_mid_line = piece[-1:] != b"\n"

    def keep_order(self, order: WriteOrder) -> None:
        """Write in turn with the others that take part."""
        self._order = order

    def wait_until_read(self) -> None:
        """Until the reader of our pipe has taken all that it holds, or is gone, or does not read."""
        gone, began = select.poll(), time.monotonic()
        gone.register(self._descriptor, 0)
        while _unread(self._descriptor) and not gone.poll(0):
            if time.monotonic() - began > READ_WITHIN_S:
                return
            time.sleep(UNREAD_PAUSE_S)


class WriteOrder:
    """Two streams are two pipes: before the other one is written to, what is in this one has to be read.

    Only of the thread that makes it: others' lines belong to no output.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._last: OutputStream | None = None

    def wait_for(self, output: OutputStream) -> None:
        """Wait until the reader gets what `output` writes after all of before."""
        if threading.get_ident() != self._thread:
            return
        if self._last is not None and self._last is not output:
            self._last.wait_until_read()
            time.sleep(PASSED_ON_S)
        self._last = output


class LogRelay:
    """One log of the job, copied to one of our streams."""

    def __init__(
        self,
        redbox: BlockingClient,
        path: str,
        query: Mapping[str, Any],
        output: OutputStream,
        before_piece: Callable[[], None] | None = None,
    ) -> None:
        """Begin at the first byte of the current generation; `before_piece` runs before each is written."""
        self._before_piece = before_piece
        self._redbox = redbox
        self._path = path
        self._query = query
        self._output = output
        self._retrier = Retrier()
        self.generation = ""
        self.offset = 0
        self.copied = 0

    def go_on(self, generation: str, offset: int) -> None:
        """Begin where another relay of this log has ended."""
        self.generation, self.offset = generation, offset

    def follow(self) -> None:
        """Copy until the job is final and its last byte is out."""
        while (count := self._copy_answer(follow=True)) is not None:
            if not count:
                time.sleep(EMPTY_PAUSE_S)

    def catch_up(self) -> None:
        """Copy what is there now."""
        while self._copy_answer(follow=False):
            pass

    def _copy_answer(self, *, follow: bool) -> int | None:
        """Copy one response; returns the number of bytes, None if there will never be more."""
        while True:
            try:
                return self._try_copy(follow=follow)
            except RedboxUnreachable as error:
                self._retrier.wait(str(error), at_least=error.retry_after)

    def _try_copy(self, *, follow: bool) -> int | None:
        query = {**self._query, "follow": str(follow).lower(), "offset": self.offset}
        if self.generation:
            query["generation"] = self.generation
        with self._redbox.stream(self._path, query) as stream:
            if stream.status == HTTPStatus.NO_CONTENT and stream.header(OFFSET_HEADER):
                return None
            if stream.status != HTTPStatus.OK:
                raise _refusal(stream)
            self._check_position(stream)
            self._retrier.reset()
            before = self.copied
            while piece := stream.read_some(PIECE):
                if self._before_piece:
                    self._before_piece()
                self._output.write(piece)
                self.offset += len(piece)
                self.copied += len(piece)
            return self.copied - before

    def _check_position(self, stream: AnswerStream) -> None:
        """Record where the response begins; any other position would lose or double bytes."""
        generation, offset = stream.header(GENERATION_HEADER), stream.header(OFFSET_HEADER)
        if not (offset.isascii() and offset.isdecimal()):
            raise stream.foreign()
        if int(offset) != (self.offset if generation == self.generation else 0):
            raise stream.foreign()
        self.generation, self.offset = generation, int(offset)


def _refusal(stream: AnswerStream) -> Exception:
    answer = stream.whole()
    if not answer.may_change:
        return LogUnreadable(answer.explanation)
    return RedboxUnreachable(answer.explanation, retry_after=answer.retry_after)


def _unread(descriptor: int) -> int:
    """How many bytes a pipe holds; a file or a terminal counts as read, and so does what cannot be asked."""
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        pass
    return 0
