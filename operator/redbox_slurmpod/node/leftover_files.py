"""Removes files of users below a folder where they can write: no link is followed, and no mount is entered.

Each folder is opened by its name in an open folder, so that nobody leads root elsewhere by a rename.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

FOLDERS = (Path("/tmp"), Path("/dev/shm"))  # noqa: S108 (the worker's own)
MOUNTS = Path("/proc/self/mountinfo")
_EMPTY_DIR = "/kubernetes.io~empty-dir/"
_DEEPEST = 64
"""Deeper ones are moved up: each level holds a descriptor."""


def emptied_folders(mounts: Path = MOUNTS) -> list[Path]:
    """Those that are the pod's own: a template may mount a claim there, which other pods use too."""
    found = []
    for line in mounts.read_text(errors="replace").splitlines():
        own, _, kind = line.partition(" - ")
        root, place = own.split()[3:5]
        if Path(place) in FOLDERS and (kind.startswith("tmpfs ") or _EMPTY_DIR in root):
            found.append(Path(place))
    return found


class LeftoverFiles:
    """What was removed, and what could not be."""

    def __init__(self, is_doomed: Callable[[int], bool], *, until: float) -> None:
        self._is_doomed = is_doomed
        self._until = until
        self.removed = 0
        self.failed = 0
        self.why = ""

    def remove_from(self, folder: Path) -> None:
        """The folder stays."""
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            while self._clear(top, top, _mount_of(top), 0):
                pass
        finally:
            os.close(top)

    def _clear(self, folder: int, top: int, mount: str, depth: int) -> bool:
        """Whether a folder was moved up to `top`, where it is to be looked at again."""
        moved = False
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            if time.monotonic() > self._until:
                self._fail("they are too many for one epilog")
                return False
            try:
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    self._remove(os.unlink, name, folder, found.st_uid)
                elif depth < _DEEPEST:
                    moved |= self._enter(name, folder, top, mount, depth)
                    self._remove(os.rmdir, name, folder, found.st_uid)
                elif self._is_doomed(found.st_uid):
                    os.rename(name, f".left-{time.monotonic_ns()}", src_dir_fd=folder, dst_dir_fd=top)
                    moved = True
            except FileNotFoundError:
                continue
            except OSError as error:
                self._fail(str(error))
        return moved

    def _enter(self, name: str, folder: int, top: int, mount: str, depth: int) -> bool:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        try:
            return _mount_of(inner) == mount and self._clear(inner, top, mount, depth + 1)
        finally:
            os.close(inner)

    def _remove(self, remove: Callable[..., None], name: str, folder: int, uid: int) -> None:
        if self._is_doomed(uid):
            remove(name, dir_fd=folder)
            self.removed += 1

    def _fail(self, why: str) -> None:
        self.failed += 1
        self.why = self.why or why


def _mount_of(folder: int) -> str:
    """A bind mount of the same file system has the same device, and another id."""
    rows = Path(f"/proc/self/fdinfo/{folder}").read_text().splitlines()
    return next(row for row in rows if row.startswith("mnt_id:"))
