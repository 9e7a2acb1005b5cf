"""Unpacking a tar into a folder while it comes, with modes and times, and nothing outside of that folder.

What is there already is replaced, so unpacking the same again is right. Folders get their modes and times
last, since a read-only one takes no files. The tar is made by the job's user: what would lie or lead outside
is left out, and owners, setuid and the like stay behind. What could not go into the tar is named in it, by
records of red-box.
"""

from __future__ import annotations

import os
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from redbox_companion.redbox import Stream

OPEN = 0o700  # a folder's mode until all that belongs into it is there
PIECE = 65536
RECORD_PATH, RECORD_WHY = "REDBOX.incomplete", "REDBOX.why"


class LeftOut(NamedTuple):
    """A path that did not come, or not whole, and why."""

    path: str
    why: str


class Tally:
    """What was in one tar."""

    def __init__(self) -> None:
        self.members = 0  # folders too, and what is left out here
        self.files = 0
        self.bytes = 0
        self.left_out: list[LeftOut] = []


class Unpacking:
    """A folder that tars are unpacked into."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: dict[Path, tuple[int, float]] = {}  # the mode and time that each is to have

    def take(self, stream: Stream) -> Tally:
        """Unpack all of one tar; raises OSError where the folder does not take it."""
        tally = Tally()
        source: Any = stream  # all that tarfile asks of it is read()
        with tarfile.open(fileobj=source, mode="r|") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it keeps all that it has seen: a million
                self._take_member(archive, member, tally)
        while stream.read(PIECE):
            pass  # only an answer that was read to its end is known to be whole
        return tally

    def finish(self) -> None:
        """Give the folders their modes and times."""
        for path in sorted(self._folders, reverse=True):
            mode, modified_at = self._folders[path]
            path.chmod(mode)
            os.utime(path, (modified_at, modified_at))

    def _take_member(self, archive: tarfile.TarFile, member: tarfile.TarInfo, tally: Tally) -> None:
        tally.members += 1
        if RECORD_PATH in member.pax_headers:
            headers = member.pax_headers
            tally.left_out.append(LeftOut(headers[RECORD_PATH], headers.get(RECORD_WHY, "")))
            return
        try:
            vetted = _vetted(member, self._folder)
        except tarfile.FilterError as error:
            tally.left_out.append(LeftOut(member.name, _why(error)))
            return
        path = self._folder / vetted.name
        self._make_way(path, vetted)
        self._extract(archive, vetted, path)
        if vetted.isdir():
            self._folders[path] = (vetted.mode, vetted.mtime)
        else:
            tally.files += 1
            tally.bytes += vetted.size

    def _extract(self, archive: tarfile.TarFile, vetted: tarfile.TarInfo, path: Path) -> None:
        try:
            archive.extract(vetted, self._folder, set_attrs=not vetted.isdir(), filter="fully_trusted")
        except OSError:
            with suppress(OSError):
                path.unlink()  # half a file is none
            raise

    def _make_way(self, path: Path, member: tarfile.TarInfo) -> None:
        """An earlier run may have left the same there, and read-only."""
        for folder in (path.parent, path):
            if folder != self._folder and folder.is_dir() and not folder.is_symlink():
                self._open(folder)
        if path.is_symlink() or (path.exists() and not (member.isdir() and path.is_dir())):
            path.unlink()

    def _open(self, folder: Path) -> None:
        status = folder.stat()
        if status.st_mode & OPEN != OPEN:
            self._folders.setdefault(folder, (status.st_mode & 0o777, status.st_mtime))
            folder.chmod(OPEN)


def _vetted(member: tarfile.TarInfo, folder: Path) -> tarfile.TarInfo:
    """What Python's filter for data lets through, with the modes that it would change."""
    if member.islnk():
        raise tarfile.SpecialFileError(member)
    checked = tarfile.data_filter(member, str(folder))
    return checked.replace(mode=member.mode & 0o777, deep=False)


def _why(error: tarfile.FilterError) -> str:
    if isinstance(error, tarfile.SpecialFileError):
        return "it is neither a file, nor a folder, nor a symbolic link"
    return "it is outside of the results, or leads there"
