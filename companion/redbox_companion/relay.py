"""Copying one of the job's streams to one of ours, byte by byte, without loss or doubling.

Where we are is two things: the *generation* of the file (a requeue begins a new one) and the offset in it.
Every request names both. An answer that breaks off is asked again from the next byte; an answer that ends
cleanly is asked again too, until red-box says 204: the job is final and there is no byte left.
"""

from __future__ import annotations

import http.client
import os
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from redbox_companion.redbox import NoAnswer, Redbox, whole

if TYPE_CHECKING:
    from redbox_companion.patience import Patience

PIECE = 65536
GENERATION = "Redbox-Generation"
OFFSET = "Redbox-Offset"


class Unreadable(Exception):
    """Red-box says that this log cannot be read, and that asking again is no use."""


@dataclass
class Place:
    """The next byte to copy."""

    generation: str = ""
    offset: int = 0


class Relay:
    """One stream of the job, copied to one file descriptor."""

    def __init__(self, redbox: Redbox, path: str, attempt: int, target: int, patience: Patience) -> None:
        """Begin at the first byte of whatever generation there is."""
        self._redbox = redbox
        self._path = path
        self._attempt = attempt
        self._target = target
        self._patience = patience
        self.place = Place()

    def run(self) -> None:
        """Copy until the job is final and its last byte is out."""
        while True:
            try:
                if self._copy_one_answer():
                    return
            except NoAnswer as error:
                time.sleep(self._patience(str(error)))

    def _copy_one_answer(self) -> bool:
        query = {"attempt": self._attempt, "follow": "true", "offset": self.place.offset}
        if self.place.generation:
            query["generation"] = self.place.generation
        with self._redbox.stream(self._path, query) as response:
            self._patience.answered()
            if response.status == HTTPStatus.NO_CONTENT:
                return True
            if response.status != HTTPStatus.OK:
                self._refused(response)
                return False
            self._take_place(response)
            self._copy(response)
        return False

    def _refused(self, response: http.client.HTTPResponse) -> None:
        answer = whole(response)
        if not answer.body.get("retry", answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR):
            raise Unreadable(answer.explanation)
        time.sleep(answer.retry_after or self._patience(answer.explanation))

    def _take_place(self, response: http.client.HTTPResponse) -> None:
        self.place.generation = response.getheader(GENERATION, "")
        self.place.offset = int(response.getheader(OFFSET, str(self.place.offset)))

    def _copy(self, response: http.client.HTTPResponse) -> None:
        while piece := response.read1(PIECE):
            _write_all(self._target, piece)
            self.place.offset += len(piece)


def _write_all(target: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(target, view) :]
