"""Detection of a change of a small local file, without reading it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Attributes that change when a file is written or replaced."""

    device: int
    inode: int
    size: int
    changed_ns: int


def file_version(path: Path) -> FileVersion | None:
    """The current version, or None if there is no such file. Has ctime, which cannot be set back."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileVersion(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
