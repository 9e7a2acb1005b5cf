"""The files of a pod's volumes, replaced as a whole, and the updates by which red-box changes them.

A volume has the layout of kubelets:

    VOLUME/..2026_11_29_19_20_01.3f9c2b1a/a/b    a set of files, complete before anything leads to it
    VOLUME/..data -> ..2026_11_29_19_20_01...    the set that counts, exchanged by one rename
    VOLUME/a -> ..data/a                         what programs open

A program that opens a file sees the old set or the new one, never half of each. Nothing is opened through a
link, since others of the user's programs may have put one there.

What has changed of a pod since its submit is in files of the pod's private folder:

    FOLDER/update.VOLUME.SOURCE    the new files of one source of a volume
    FOLDER/update.pod              what else has changed; written last

Each begins with a line of JSON. Of a volume's source it lists the files, whose contents follow in that order.
A newer one replaces an older one of its name, so that there are never more than the pod has sources. The
runner takes one by renaming it, and removes it once it is applied.
"""

import io
import json
import os
import shutil
import stat
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Set

DATA, NEW_DATA = "..data", "..data_tmp"
PREFIX, TAKEN = "update.", "taken."
OF_POD = "pod"
LONGEST_HEADER = 4 * 1024 * 1024
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PIECE = 64 * 1024


class VolumeFile:
    """A file of a volume; `source` is the number of the source that brings it."""

    def __init__(self, path: str, mode: int, source: int) -> None:
        parts = path.split("/")
        if not all(parts) or "." in parts or parts[0].startswith("..") or ".." in parts:
            raise ValueError("{!r} is not a path in a volume".format(path))
        self.path = path
        self.mode = mode
        self.source = source


WriteContent = Callable[[VolumeFile, int], None]
"""Writes the content of an entry into an open file."""


class VolumeFiles:
    """The sets of one volume: the one that counts, and those that mounts of a subPath still show."""

    def __init__(self, path: str) -> None:
        os.mkdir(path, 0o755)
        self.path = path
        self._entries: Dict[str, VolumeFile] = {}
        self._set = ""
        self._shown: Set[str] = set()
        self._lock = threading.Lock()

    def resolve(self, find: Callable[[], str]) -> str:
        """A path in the set that counts, which is kept from now on: a mount of a subPath never changes."""
        with self._lock:
            self._shown.add(self._set)
            return find()

    def replace(self, source: Optional[int], entries: List[VolumeFile], write: WriteContent) -> bool:
        """Replace the files of one source, or all of them (None); whether anything has changed.

        `write` is called for each entry in this order. Of two with one path the later source's counts.
        """
        with self._lock:
            kept = [] if source is None else [e for e in self._entries.values() if e.source != source]
            chosen = {e.path: e for e in sorted([*kept, *entries], key=lambda entry: entry.source)}
            folder = os.open(self.path, FOLDER_FLAGS)
            try:
                return self._replace(folder, chosen, entries, write)
            finally:
                os.close(folder)

    def _replace(
        self, folder: int, chosen: Dict[str, VolumeFile], entries: List[VolumeFile], write: WriteContent
    ) -> bool:
        name = "..{}.{}".format(time.strftime("%Y_%m_%d_%H_%M_%S", time.gmtime()), os.urandom(4).hex())
        os.mkdir(name, 0o755, dir_fd=folder)
        try:
            new = os.open(name, FOLDER_FLAGS, dir_fd=folder)
            try:
                self._fill(folder, new, chosen, entries, write)
                is_changed = not self._set or self._differs(folder, new, chosen)
            finally:
                os.close(new)
            if is_changed:
                with suppress(FileNotFoundError):
                    os.unlink(NEW_DATA, dir_fd=folder)
                os.symlink(name, NEW_DATA, dir_fd=folder)
                os.rename(NEW_DATA, DATA, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            self._remove(name)
            raise
        if not is_changed:
            self._remove(name)
            return False
        self._link(folder, chosen)
        before, self._set, self._entries = self._set, name, chosen
        if before and before not in self._shown:
            self._remove(before)
        return True

    def _fill(
        self,
        folder: int,
        new: int,
        chosen: Dict[str, VolumeFile],
        entries: List[VolumeFile],
        write: WriteContent,
    ) -> None:
        for entry in entries:
            if chosen[entry.path] is entry:
                write_entry(new, entry, partial(write, entry))
            else:
                with open(os.devnull, "wb") as nothing:  # its content comes before that of the next one
                    write(entry, nothing.fileno())
        written = set(map(id, entries))
        for entry in chosen.values():
            if id(entry) not in written:
                with open_old(folder, self._set, entry.path) as old:
                    write_entry(new, entry, partial(copy_all, old.fileno()))

    def _differs(self, folder: int, new: int, chosen: Dict[str, VolumeFile]) -> bool:
        before = self._entries
        if {path: e.mode for path, e in before.items()} != {path: e.mode for path, e in chosen.items()}:
            return True
        try:
            for path in chosen:
                with open_old(folder, self._set, path) as old, io.FileIO(open_inside(new, path)) as now:
                    if not has_same_content(old.fileno(), now.fileno()):
                        return True
            return os.readlink(DATA, dir_fd=folder) != self._set
        except OSError:  # others have touched it
            return True

    def _link(self, folder: int, chosen: Dict[str, VolumeFile]) -> None:
        """Programs see no name whose file is missing: new ones come after the exchange, and old ones go."""
        names = {path.split("/")[0] for path in chosen}
        for name in sorted(names):
            with suppress(FileExistsError):
                os.symlink(os.path.join(DATA, name), name, dir_fd=folder)
        for name in {path.split("/")[0] for path in self._entries} - names:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)

    def _remove(self, name: str) -> None:
        shutil.rmtree(os.path.join(self.path, name), ignore_errors=True)


def open_inside(folder: int, path: str, flags: int = os.O_RDONLY, *, make: bool = False) -> int:
    """Open a file below a folder part by part, none of them a link; `make` folders that are missing."""
    *parents, name = path.split("/")
    at = os.dup(folder)
    try:
        for part in parents:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
            below = os.open(part, FOLDER_FLAGS, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, flags | FILE_FLAGS, 0o600, dir_fd=at)
    finally:
        os.close(at)


def open_old(folder: int, set_name: str, path: str) -> io.FileIO:
    file = io.FileIO(open_inside(folder, "{}/{}".format(set_name, path)))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FileNotFoundError(2, "not a file any more", path)
    return file


def write_entry(new: int, entry: VolumeFile, write: Callable[[int], None]) -> None:
    file = open_inside(new, entry.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, make=True)
    try:
        write(file)
        os.fchmod(file, entry.mode)
    finally:
        os.close(file)


def copy_all(source: int, target: int) -> None:
    for piece in iter(lambda: os.read(source, PIECE), b""):
        write_whole(target, piece)


def write_whole(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def has_same_content(first: int, second: int) -> bool:
    if os.fstat(first).st_size != os.fstat(second).st_size:
        return False
    while True:
        pieces = os.read(first, PIECE), os.read(second, PIECE)
        if pieces[0] != pieces[1]:
            return False
        if not pieces[0]:
            return True


class UpdateFile:
    """One of them, open."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        self._file = os.fdopen(descriptor, "rb")
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        line = self._file.readline(LONGEST_HEADER) if is_file else b""
        self.header: Dict[str, Any] = json.loads(line.decode())

    def close(self) -> None:
        self._file.close()

    def copy(self, size: int, target: int) -> None:
        """The next so many bytes."""
        while size > 0:
            data = self._file.read(min(size, 64 * 1024))
            if not data:
                raise ValueError("it ends early")
            size -= len(data)
            while data:
                data = data[os.write(target, data) :]


def take_updates(folder: str) -> List[str]:
    """The paths of all that are to be applied, the pod's own last; those that could not be applied, again."""
    for name in os.listdir(folder):
        if name.startswith(PREFIX):
            taken = TAKEN + name[len(PREFIX) :]
            os.rename(os.path.join(folder, name), os.path.join(folder, taken))
    names = [name for name in os.listdir(folder) if name.startswith(TAKEN)]
    return [os.path.join(folder, name) for name in sorted(names, key=lambda n: (n == TAKEN + OF_POD, n))]
