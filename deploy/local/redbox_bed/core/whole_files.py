"""Files that are there whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Never readable by others for a moment where the mode forbids it."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.touch(mode=mode)
    unfinished.chmod(mode)
    unfinished.write_bytes(content)
    unfinished.replace(path)
