"""The journal's file: its schema, and the statements that read and write it.

Blocking and for one thread; `journal` runs it in a thread of its own.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redbox.core.domain import JobKey, Owner
from redbox.jobs.errors import JournalError, JournalFull, JournalUnreadable
from redbox.jobs.record.codec import to_text
from redbox.jobs.record.packed_records import RecordSummary, summary_from_text
from redbox.jobs.record.record import JobRecord, Tombstone, shared, sort_key
from redbox.jobs.store import volume_rows
from redbox.jobs.store.journal_facts import MALFORMED
from redbox.jobs.store.volume_rows import VolumeRecord
from redbox_shared.printable import printable

SCHEMA = (
    # Version 1. WITHOUT ROWID: the key is the row's place, and no second index is kept.
    """
    CREATE TABLE jobs (
        cluster TEXT NOT NULL, namespace TEXT NOT NULL, account TEXT NOT NULL, account_uid TEXT NOT NULL,
        key TEXT NOT NULL, attempt INTEGER NOT NULL,
        uid INTEGER NOT NULL, mark TEXT NOT NULL, job_id TEXT, final_at REAL, revision INTEGER NOT NULL,
        record TEXT NOT NULL,
        PRIMARY KEY (cluster, namespace, account, account_uid, key, attempt)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tombstones (
        cluster TEXT NOT NULL, namespace TEXT NOT NULL, account TEXT NOT NULL, account_uid TEXT NOT NULL,
        key TEXT NOT NULL, attempt INTEGER NOT NULL, made_at REAL NOT NULL,
        PRIMARY KEY (cluster, namespace, account, account_uid, key, attempt)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    """
    + volume_rows.TABLE,
)
ALL_JOBS = """
    SELECT cluster, namespace, account, account_uid, key, attempt, revision, record
    FROM jobs ORDER BY revision
"""
LONGEST_REASON = 300
KEY = "cluster = ? AND namespace = ? AND account = ? AND account_uid = ? AND key = ? AND attempt = ?"
FORGET = f"DELETE FROM jobs WHERE {KEY}"  # noqa: S608 - made of constants
SAVE = "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
LIFT = f"DELETE FROM tombstones WHERE {KEY}"  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """Changes that are committed together or not at all."""

    save: tuple[JobRecord, ...] = ()
    forget: tuple[JobKey, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    lift: tuple[Tombstone, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    volumes: tuple[VolumeRecord, ...] = ()
    forget_volumes: tuple[str, ...] = ()  # by handle


@dataclass(frozen=True, slots=True)
class JournalContents:
    """All that a journal holds."""

    records: tuple[RecordSummary, ...]
    tombstones: tuple[Tombstone, ...]
    facts: dict[str, str]
    volumes: tuple[VolumeRecord, ...] = ()


class Database:
    """An open journal file. Every write is on the disk when `commit` returns."""

    def __init__(self, path: Path) -> None:
        # Created here and not by SQLite, so that no other user can ever have opened it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._migrate()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # SQLite quotes what a damaged file has
            raise self._fault(error) from error

    def _migrate(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(SCHEMA):
            raise JournalUnreadable(
                f"The journal {self._path} was written by a newer red-box (schema {version}, this one knows "
                f"{len(SCHEMA)}). Start that release again; an older one would lose what it wrote."
            )
        for number, statements in enumerate(SCHEMA[version:], version + 1):
            self._db.executescript(f"BEGIN;{statements}PRAGMA user_version = {number};COMMIT;")
        epoch = ("epoch", secrets.token_hex(6))  # an unknown epoch makes a watcher list again
        self._db.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", epoch)

    def load(self) -> JournalContents:
        try:
            facts = dict(self._db.execute("SELECT name, value FROM facts"))
            volumes = tuple(map(volume_rows.from_row, self._db.execute(volume_rows.ALL)))
            return JournalContents(tuple(self._records()), tuple(self._tombstones()), facts, volumes)
        except sqlite3.DatabaseError as error:
            raise self._fault(error) from error
        except MALFORMED as error:
            raise self._unreadable(error) from error

    def _records(self) -> Iterator[RecordSummary]:
        for *names, key, attempt, revision, text in self._db.execute(ALL_JOBS):
            try:
                yield summary_from_text(JobKey(shared(Owner(*names)), key, attempt), revision, text)
            except MALFORMED as error:
                why = f"the row of {'/'.join(names[:3])}/{key}: {type(error).__name__}: {error}"
                raise self._unreadable(ValueError(why)) from error

    def _tombstones(self) -> Iterator[Tombstone]:
        for *names, key, attempt, made_at in self._db.execute("SELECT * FROM tombstones"):
            yield Tombstone(shared(Owner(*names)), key, attempt, datetime.fromtimestamp(made_at, UTC))

    def commit(self, batches: list[JournalBatch]) -> None:
        """Write these; on any fault nothing of them is written."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for batch in batches:
                self._write(batch)
            self._db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._fault(error) from error
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _write(self, batch: JournalBatch) -> None:
        stones = [(*sort_key(t), t.made_at.timestamp()) for t in batch.tombstones]
        changes: tuple[tuple[str, Collection[object], Callable[[Any], Sequence[object]]], ...] = (
            (FORGET, batch.forget, sort_key),
            (SAVE, batch.save, _row),
            ("INSERT OR REPLACE INTO tombstones VALUES (?, ?, ?, ?, ?, ?, ?)", stones, tuple),
            (LIFT, batch.lift, sort_key),
            ("INSERT OR REPLACE INTO facts VALUES (?, ?)", batch.facts, tuple),
            (volume_rows.SAVE, batch.volumes, volume_rows.to_row),
            (volume_rows.FORGET, batch.forget_volumes, lambda handle: (handle,)),
        )
        for statement, things, to_row in changes:
            if things:  # most batches are one record
                self._db.executemany(statement, map(to_row, things))

    def close(self) -> None:
        self._db.close()

    def _fault(self, error: Exception) -> JournalError:
        code = getattr(error, "sqlite_errorcode", 0)  # text that is not UTF-8 has none
        if code & 0xFF in (
            sqlite3.SQLITE_FULL,
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_READONLY,
        ):
            return JournalFull(
                f"The journal {self._path} cannot be written ({error}): new submits are refused until its "
                "disk has room. What runs is not touched, and reading goes on."
            )
        return self._unreadable(error)

    def _unreadable(self, error: Exception) -> JournalUnreadable:
        why = printable(" ".join(str(error)[:LONGEST_REASON].split()))
        return JournalUnreadable(
            f"The journal {self._path} cannot be used ({why}). Move it away, keep it, and run `redbox "
            "recover`, which rebuilds one from Slurm's own records."
        )


def _row(record: JobRecord) -> tuple[object, ...]:
    key = record.key
    final_at = record.final_at.timestamp() if record.final_at else None
    facts = (record.user.uid, record.mark, record.job_id, final_at, record.revision, to_text(record))
    return (*sort_key(key), *facts)
