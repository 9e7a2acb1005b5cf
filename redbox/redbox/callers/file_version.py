"""Detection of a change of a small local file, without reading it again."""

from __future__ import annotations

from pathlib import Path

FileVersion = tuple[int, int, int, int]  # device, inode, size and ctime in ns, which cannot be set back


def file_version(path: Path) -> FileVersion | None:
    """Return the current version, which a write or a replacement changes; None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
