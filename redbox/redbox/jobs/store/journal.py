"""The journal: what survives a crash. A change is on the disk before anybody is told of it.

SQLite (WAL, synchronous=FULL) behind one thread of its own, so that a slow disk never stops the event loop.
All that waits while a commit is under way goes into the next one together: many submits share a sync.
Answers come in the order of the questions, which is what lets revisions be handed out before the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from redbox.jobs.errors import JournalError, JournalMisplaced
from redbox.jobs.store.journal_lock import JournalLock, refuse_network
from redbox.jobs.store.sqlite import Database, JournalBatch, JournalContents

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
        except JournalError:
            self._lock.release()
            raise
        self.epoch = self.contents.facts["epoch"]
        self._asked: queue.SimpleQueue[CommitRequest | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="journal", daemon=True)
        self._thread.start()

    def take_contents(self) -> JournalContents:
        """What was in it when it was opened; once, for whoever keeps it in memory."""
        contents, self.contents = self.contents, None
        if contents is None:
            raise JournalError("The journal was read before: open it anew.")
        return contents

    def commit(self, batch: JournalBatch, answer: OnCommitted) -> None:
        """Write this; `answer` is called in the running event loop, in the order of the commits."""
        self._asked.put((asyncio.get_running_loop(), batch, answer))

    def close(self) -> None:
        """Write what was asked, then let go; may be called twice."""
        if self._thread.is_alive():
            self._asked.put(None)
            self._thread.join()
            self._database.close()
            self._lock.release()

    def _serve(self) -> None:
        closing = False
        while not closing:
            asked = [self._asked.get()]
            while not self._asked.empty():
                asked.append(self._asked.get())
            closing = None in asked
            self._commit([one for one in asked if one is not None])

    def _commit(self, asked: list[CommitRequest]) -> None:
        fault = self._written([batch for _, batch, _ in asked]) if asked else None
        alone = (
            fault is not None and len(asked) > 1
        )  # one that cannot be written must not take the others with it
        for loop, batch, answer in asked:
            answered = self._written([batch]) if alone else fault
            with contextlib.suppress(RuntimeError):  # its loop has ended: nobody is left to hear of it
                loop.call_soon_threadsafe(answer, answered)

    def _written(self, batches: list[JournalBatch]) -> JournalError | None:
        try:
            self._database.commit(batches)
        except JournalError as error:
            return error
        except (
            ValueError,
            TypeError,
        ) as error:  # text that is no UTF-8, a number too large: this change's own fault
            return JournalError(f"This cannot be written to the journal: {error}.")
        return None
