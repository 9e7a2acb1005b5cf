"""Unpacking a tar into a folder while it arrives, with modes and times, and nothing outside of that folder.

Existing files are replaced, so that the same tar can be unpacked again. Folders get their modes and times
last, since a read-only folder takes no files. The job's user made the tar: members that would lie outside of
the folder or point there are left out, and owners, setuid and the like are dropped. Files that could not go
into the tar are named in it, by records of red-box.
"""

from __future__ import annotations

import os
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from redbox_companion.redbox_client import AnswerStream

WRITABLE = 0o700  # a folder's mode until all its files are unpacked
PIECE = 65536
LATEST = 2**62
LONGEST_PATH = 4000
"""realpath, by which the data filter judges, follows no link beyond PATH_MAX (4096), and does not say so."""
RECORD_PATH, RECORD_WHY = "REDBOX.incomplete", "REDBOX.why"


class UnpackedTar:
    """Counts of one tar's members."""

    def __init__(self) -> None:
        self.members = 0  # folders too, and those left out here
        self.files = 0
        self.bytes = 0
        self.left_out: list[tuple[str, str]] = []  # paths that were not unpacked, or not whole, and why


class TarUnpacker:
    """Unpacks tars into one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folders: dict[Path, tuple[int, float]] = {}  # the mode and time that each gets in the end

    def unpack(self, stream: AnswerStream) -> UnpackedTar:
        """Unpack all of one tar; raises OSError where the folder cannot be written."""
        tar = UnpackedTar()
        source: Any = stream  # tarfile calls only read()
        with tarfile.open(fileobj=source, mode="r|") as archive:
            while (member := archive.next()) is not None:
                archive.members = []  # type: ignore[attr-defined]  # it would keep all members: a million
                self._unpack_member(archive, member, tar)
        while stream.read(PIECE):
            pass  # only a response that was read to its end is known to be whole
        return tar

    def finish(self) -> None:
        """Give the folders their modes and times.

        A volume's group lets us write into those of an earlier user of the companions: they keep theirs.
        """
        for path in sorted(self._folders, reverse=True):
            mode, modified_at = self._folders[path]
            if path.stat().st_uid != os.geteuid():
                continue
            path.chmod(mode)
            os.utime(path, (modified_at, modified_at))

    def _unpack_member(self, archive: tarfile.TarFile, member: tarfile.TarInfo, tar: UnpackedTar) -> None:
        tar.members += 1
        if RECORD_PATH in member.pax_headers:
            headers = member.pax_headers
            tar.left_out.append((headers[RECORD_PATH], headers.get(RECORD_WHY, "")))
            return
        try:
            vetted = _vetted(member, self._folder)
        except tarfile.FilterError as error:
            tar.left_out.append((member.name, _why(error)))
            return
        path = self._folder / vetted.name
        self._make_way(path, vetted)
        self._extract(archive, vetted, path)
        if vetted.isdir():
            self._folders[path] = (vetted.mode, vetted.mtime)
        else:
            tar.files += 1
            tar.bytes += vetted.size

    def _extract(self, archive: tarfile.TarFile, vetted: tarfile.TarInfo, path: Path) -> None:
        try:
            archive.extract(vetted, self._folder, set_attrs=not vetted.isdir(), filter="fully_trusted")
        except OSError:
            with suppress(OSError):
                path.unlink()  # rather no file than half of one
            raise

    def _make_way(self, path: Path, member: tarfile.TarInfo) -> None:
        """Remove an existing file, and make folders writable: an earlier run may have left both read-only."""
        for folder in (path.parent, path):
            if folder == self._folder or not folder.is_dir() or folder.is_symlink():
                continue
            status = folder.stat()
            if status.st_mode & WRITABLE != WRITABLE:
                self._folders.setdefault(folder, (status.st_mode & 0o777, status.st_mtime))
                folder.chmod(WRITABLE)
        if path.is_symlink() or (path.exists() and not (member.isdir() and path.is_dir())):
            path.unlink()


def _vetted(member: tarfile.TarInfo, folder: Path) -> tarfile.TarInfo:
    """The member as Python's data filter passes it, but with its own mode."""
    if member.islnk():
        raise tarfile.SpecialFileError(member)
    path = folder / member.name.lstrip("/")
    for leads_to in (path, path.parent / member.linkname):
        if len(os.fsencode(os.path.realpath(leads_to))) >= LONGEST_PATH:
            raise tarfile.OutsideDestinationError(member, str(leads_to))
    checked = tarfile.data_filter(member, str(folder))
    modified_at = member.mtime if abs(member.mtime) < LATEST else 0  # no file system has others
    return checked.replace(mode=member.mode & 0o777, mtime=modified_at, deep=False)


def _why(error: tarfile.FilterError) -> str:
    if isinstance(error, tarfile.SpecialFileError):
        return "it is neither a file, nor a folder, nor a symbolic link"
    return "it is outside of the results, or points there"
