"""Things that are built once: folders of the cache, each named by a hash of all that it was made from.

A build happens beside its place, under a lock, and is renamed when it is whole: a killed build leaves
nothing that could be mistaken for a result, and a second process waits for the first instead of doing the
same work.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEY_LENGTH = 16


def key_of(*inputs: str | bytes) -> str:
    """Short and the same for the same inputs in the same order."""
    digest = hashlib.sha256()
    for value in inputs:
        content = value.encode() if isinstance(value, str) else value
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:KEY_LENGTH]


def contents_of(folder: Path, *patterns: str) -> bytes:
    """All files below `folder` that match, each with its name, as one input of a key; no compiled Python."""
    matching = (file for pattern in patterns for file in folder.rglob(pattern) if file.is_file())
    files = sorted({file for file in matching if "__pycache__" not in file.parts})
    return b"".join(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0" for file in files)


def ensure_built(target: Path, build: Callable[[Path], object]) -> Path:
    """The folder `target`; if it is missing, `build` is given an empty folder to fill."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(target.name + ".lock")):
        if not target.is_dir():
            unfinished = target.with_name(target.name + ".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(target)
    return target


def forget_unused(shelf: Path, pattern: str, since: float) -> None:
    """Remove what was built before `since` (in seconds of the epoch) and, with it, its lock."""
    for path in shelf.glob(pattern):
        if path.stat().st_mtime < since:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
