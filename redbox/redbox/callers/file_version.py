"""Whether a small local file is still the one that was read, without reading it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What changes when a file is written or replaced."""

    device: int
    inode: int
    size: int
    changed_ns: int


def file_version(path: Path) -> FileVersion | None:
    """The file's stamp now, or None where there is none. By ctime, which nobody can set back."""
    try:
        status = path.stat()
    except OSError:
        return None
    return FileVersion(status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
