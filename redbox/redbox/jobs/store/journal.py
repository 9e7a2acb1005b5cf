"""The journal survives a crash: a change is on the disk before it is published.

SQLite (WAL, synchronous=FULL) behind one thread of its own, so that a slow disk never stops the event loop.
Batches that arrive during a commit go into the next one together: many submits share a sync. Batches are
answered in their order, so that revisions can be assigned before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from redbox.jobs.errors import JournalError, JournalMisplaced
from redbox.jobs.store.journal_lock import JournalLock, refuse_network
from redbox.jobs.store.sqlite import Database, JournalBatch, JournalContents

log = structlog.get_logger(__name__)

FILE_NAME = "journal.db"
LOCK_NAME = "journal.lock"

OnCommitted = Callable[[JournalError | None], None]
CommitRequest = tuple[asyncio.AbstractEventLoop, JournalBatch, OnCommitted]


class Journal:
    """An open, locked journal; made and loaded before the server answers anybody."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise JournalMisplaced(
                f"The journal's directory {directory} does not exist: make it, 0700, for red-box's account."
            )
        refuse_network(directory)
        self._lock = JournalLock(directory / LOCK_NAME)
        try:
            self._database = Database(directory / FILE_NAME)
            self.contents: JournalContents | None = self._database.load()
            self.volumes = self.contents.volumes
        except JournalError:
            self._lock.release()
            raise
        self.epoch = self.contents.facts["epoch"]
        self._queue: queue.SimpleQueue[CommitRequest | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="journal", daemon=True)
        self._thread.start()

    def take_contents(self) -> JournalContents:
        """The contents as of opening; once, because the caller keeps them in memory."""
        contents, self.contents = self.contents, None
        if contents is None:
            raise JournalError("The journal was read before: open it again.")
        return contents

    def commit(self, batch: JournalBatch, answer: OnCommitted) -> None:
        """Write this; `answer` is called in the running event loop, in the order of the commits."""
        self._queue.put((asyncio.get_running_loop(), batch, answer))

    def close(self) -> None:
        """Write the queued batches and release the lock; may be called twice."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
            self._database.close()
            self._lock.release()

    def _serve(self) -> None:
        closing = False
        while not closing:
            requests = [self._queue.get()]
            while not self._queue.empty():
                requests.append(self._queue.get())
            closing = None in requests
            self._commit([request for request in requests if request is not None])

    def _commit(self, requests: list[CommitRequest]) -> None:
        fault = self._written([batch for _, batch, _ in requests]) if requests else None
        alone = fault is not None and len(requests) > 1  # a batch that fails must not fail the others
        answers: dict[asyncio.AbstractEventLoop, list[tuple[OnCommitted, JournalError | None]]] = {}
        for loop, batch, answer in requests:
            answers.setdefault(loop, []).append((answer, self._written([batch]) if alone else fault))
        for loop, of_loop in answers.items():
            with contextlib.suppress(RuntimeError):  # it has ended, and with it the callers
                loop.call_soon_threadsafe(_answer_all, of_loop)

    def _written(self, batches: list[JournalBatch]) -> JournalError | None:
        try:
            self._database.commit(batches)
        except JournalError as error:
            return error
        except (ValueError, TypeError, OverflowError) as error:  # text that is not UTF-8, a number too large
            return JournalError(f"This cannot be written to the journal: {error}.")
        return None


def _answer_all(answers: list[tuple[OnCommitted, JournalError | None]]) -> None:
    """In one turn of the loop: to wake it for each costs more than the answer."""
    for answer, fault in answers:
        try:
            answer(fault)
        except Exception:  # a fault of ours over one change must not leave the others unanswered
            log.exception("a change of the journal could not be answered")
