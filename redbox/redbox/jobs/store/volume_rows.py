"""The journal's rows of volumes: the folders that red-box made, and for whom.

A row is kept for a while after its folder was deleted, so that a second DELETE gets the answer of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redbox.core.domain import Owner, UnixUser

TABLE = """
    CREATE TABLE volumes (
        handle TEXT PRIMARY KEY,
        cluster TEXT NOT NULL, namespace TEXT NOT NULL, account TEXT NOT NULL, account_uid TEXT NOT NULL,
        user TEXT NOT NULL, uid INTEGER NOT NULL, claim TEXT NOT NULL, path TEXT NOT NULL, inode TEXT,
        made_at REAL NOT NULL, deleted_at REAL
    ) STRICT, WITHOUT ROWID;
"""
ALL = """
    SELECT handle, cluster, namespace, account, account_uid, user, uid, claim, path, inode, made_at,
        deleted_at
    FROM volumes
"""
SAVE = "INSERT OR REPLACE INTO volumes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
FORGET = "DELETE FROM volumes WHERE handle = ?"


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A folder of a volume; `inode` is None until the folder was made."""

    handle: str
    owner: Owner
    user: UnixUser
    claim: str
    path: str
    made_at: datetime
    inode: int | None = None
    deleted_at: datetime | None = None

    def __str__(self) -> str:
        return f"{self.owner}/volumes/{self.handle}"


def to_row(record: VolumeRecord) -> tuple[object, ...]:
    owner = record.owner
    names = (record.handle, owner.cluster, owner.namespace, owner.account, owner.account_uid)
    inode = None if record.inode is None else str(record.inode)  # has 64 bits, SQLite's integers 63
    deleted_at = record.deleted_at.timestamp() if record.deleted_at else None
    folder = (record.user.name, record.user.uid, record.claim, record.path, inode)
    return (*names, *folder, record.made_at.timestamp(), deleted_at)


def from_row(row: Sequence[Any]) -> VolumeRecord:
    handle, *names, user, uid, claim, path, inode, made_at, deleted_at = row
    return VolumeRecord(
        handle=handle,
        owner=Owner(*names),
        user=UnixUser(user, uid),
        claim=claim,
        path=path,
        made_at=datetime.fromtimestamp(made_at, UTC),
        inode=None if inode is None else int(inode),
        deleted_at=None if deleted_at is None else datetime.fromtimestamp(deleted_at, UTC),
    )
