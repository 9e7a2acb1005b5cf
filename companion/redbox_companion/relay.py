"""Copying one of the job's streams to one of ours, byte by byte, without loss or doubling.

Where we are is two things: the *generation* of the file (a requeue begins a new one) and the offset in it.
Every request names both. An answer that breaks off is asked again from the next byte; an answer that ends
cleanly is asked again too, until red-box says 204: the job is final and there is no byte left.
"""

from __future__ import annotations

import os
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from redbox_companion.patience import Patience
from redbox_companion.redbox import NoAnswer, Redbox, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PIECE = 65536
EMPTY_PAUSE_S = 0.2  # red-box waits for the first byte; this is for a day on which it does not
GENERATION = "Redbox-Generation"
OFFSET = "Redbox-Offset"


class Unreadable(Exception):
    """Red-box says that this log cannot be read, and that asking again is no use."""


class Unwritable(Exception):
    """Nobody takes what we write any more."""


class Outlet:
    """One of our own streams."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.in_mid_line = False

    def write(self, piece: bytes) -> None:
        """All of it, however long the reader takes: as long as it does not read, neither do we."""
        view = memoryview(piece)
        while view:
            try:
                count = os.write(self._descriptor, view)
            except OSError as error:
                raise Unwritable(f"it cannot be written on: {error.strerror}") from error
            view = view[count:]
        self.in_mid_line = piece[-1:] != b"\n"


class Relay:
    """One log of the job, copied to one of our streams."""

    def __init__(
        self,
        redbox: Redbox,
        path: str,
        query: Mapping[str, Any],
        outlet: Outlet,
        before_first: Callable[[], None] | None = None,
    ) -> None:
        """Begin at the first byte of whatever generation there is."""
        self._before_first = before_first
        self._redbox = redbox
        self._path = path
        self._query = query
        self._outlet = outlet
        self._patience = Patience()
        self._generation = ""
        self._offset = 0
        self.copied = 0

    def follow(self) -> None:
        """Copy until the job is final and its last byte is out."""
        while (count := self._copy_one_answer(follow=True)) is not None:
            if not count:
                time.sleep(EMPTY_PAUSE_S)

    def catch_up(self) -> None:
        """Copy what is there now."""
        while self._copy_one_answer(follow=False):
            pass

    def _copy_one_answer(self, *, follow: bool) -> int | None:
        """How many bytes there were; None when there will never be more."""
        while True:
            try:
                return self._copy(follow=follow)
            except NoAnswer as error:
                self._patience.wait(str(error), at_least=error.retry_after)

    def _copy(self, *, follow: bool) -> int | None:
        query = {**self._query, "follow": str(follow).lower(), "offset": self._offset}
        if self._generation:
            query["generation"] = self._generation
        with self._redbox.stream(self._path, query) as stream:
            if stream.status == HTTPStatus.NO_CONTENT and stream.header(OFFSET):
                return None
            if stream.status != HTTPStatus.OK:
                self._refused(stream)
            self._take_place(stream)
            self._patience.answered()
            before = self.copied
            while piece := stream.read_some(PIECE):
                if self._before_first and not self.copied:
                    self._before_first()
                self._outlet.write(piece)
                self._offset += len(piece)
                self.copied += len(piece)
            return self.copied - before

    def _refused(self, stream: Stream) -> None:
        answer = stream.whole()
        if not answer.may_change:
            raise Unreadable(answer.explanation)
        raise NoAnswer(answer.explanation, retry_after=answer.retry_after)

    def _take_place(self, stream: Stream) -> None:
        """Where the answer begins; the middle of nowhere would lose or double bytes."""
        generation, offset = stream.header(GENERATION), stream.header(OFFSET)
        if not (offset.isascii() and offset.isdecimal()):
            raise stream.is_strange()
        if int(offset) != (self._offset if generation == self._generation else 0):
            raise stream.is_strange()
        self._generation, self._offset = generation, int(offset)
