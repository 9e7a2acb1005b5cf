"""The folder of backups: one folder for each, which gets its name when it is whole.

    new/                     the next one, not whole yet
    20261129T154700Z/
        database.sql         by mariadb-dump, made first; none of a cluster without accounting
        state/               of slurmctld
        backup.json          when it was taken, the next job's id, and the digest of each file

The database comes first: what slurmctld's state has in addition it reports again to slurmdbd. A backup is for
its account and that one's group, since scripts and environments of jobs may have secrets; MariaDB, which has
another account, reads its dump by the group.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from redbox_slurmpod.backup.state_folder import JOB_STATE, UnusableState, next_job_id, state_files

log = logging.getLogger(__name__)
NEW, STATE, DATABASE, MANIFEST = "new", "state", "database.sql", "backup.json"
NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
ASSOC_USAGE = "assoc_usage"
"""26.05 with accounting ends without it, unless it starts for the first time."""
_DUMP_ENDS = b"-- Dump completed"
_TAIL = 256


class UnusableBackup(OSError):
    """A backup that is not whole."""


@dataclass(frozen=True)
class BackupManifest:
    """What backup.json says."""

    taken: str
    next_job_id: int
    digests: Mapping[str, str]
    """The sha256 of each file by its path in the backup."""

    @property
    def text(self) -> str:
        content = {"taken": self.taken, "nextJobId": self.next_job_id, "sha256": dict(self.digests)}
        return json.dumps(content, indent=1) + "\n"

    @classmethod
    def read(cls, backup: Path) -> BackupManifest:
        try:
            found = json.loads((backup / MANIFEST).read_text())
            return cls(str(found["taken"]), int(found["nextJobId"]), dict(found["sha256"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnusableBackup(f"{backup} is not a whole backup: {error}") from error


def make_backup(state: Path, folder: Path, now: datetime, *, keep: int, with_database: bool) -> Path:
    """The folder of the new backup; older ones than the newest `keep` are removed."""
    new = folder / NEW
    new.mkdir(exist_ok=True)
    new.chmod(0o750)
    digests = {DATABASE: _checked_dump(new / DATABASE)} if with_database else {}
    shutil.rmtree(new / STATE, ignore_errors=True)
    next_id = 0
    for name, content in state_files(state):
        _write(new / STATE / name, content)
        digests[f"{STATE}/{name}"] = hashlib.sha256(content).hexdigest()
        if name == JOB_STATE:
            next_id = next_job_id(content)
    if with_database and f"{STATE}/{ASSOC_USAGE}" not in digests:
        raise UnusableState(
            f"slurmctld has not saved {ASSOC_USAGE} yet, without which it would not start: it does so within "
            "five minutes of its first start"
        )
    manifest = BackupManifest(now.isoformat(), next_id, digests)
    _write(new / MANIFEST, manifest.text.encode())
    made = folder / now.strftime("%Y%m%dT%H%M%SZ")
    new.rename(made)
    os.sync()
    log.info("%s: %d files, the next job is %d", made, len(digests), next_id)
    for old in whole_backups(folder)[:-keep]:
        shutil.rmtree(old)
        log.info("%s was removed: it is older than the newest %d", old, keep)
    return made


def whole_backups(folder: Path) -> list[Path]:
    """The oldest one first."""
    return sorted(each for each in folder.iterdir() if NAME.fullmatch(each.name))


def check_backup(backup: Path) -> BackupManifest:
    """Raises UnusableBackup unless each file is as it was written."""
    manifest = BackupManifest.read(backup)
    for name, digest in manifest.digests.items():
        try:
            found = _digest(backup / name)
        except OSError as error:
            raise UnusableBackup(f"{backup} is not a whole backup: {error}") from error
        if found != digest:
            raise UnusableBackup(f"{backup / name} is not as it was written: use another backup")
    if f"{STATE}/{JOB_STATE}" not in manifest.digests:
        raise UnusableBackup(f"{backup} has no {JOB_STATE}")
    return manifest


def _checked_dump(file: Path) -> str:
    """mariadb-dump says at the end that it came so far."""
    try:
        with file.open("rb") as content:
            content.seek(max(file.stat().st_size - _TAIL, 0))
            tail = content.read()
    except OSError as error:
        raise UnusableState(f"there is no dump of the database: {error}") from error
    if _DUMP_ENDS not in tail:
        raise UnusableState(f"{file} is not a whole dump")
    return _digest(file)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    with open(descriptor, "wb") as output:  # noqa: PTH123 - a path has no descriptor
        output.write(content)
