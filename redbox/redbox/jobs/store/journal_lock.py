"""The file system of the journal's directory, and the lock that excludes a second server.

SQLite's promises rest on locks and syncs that network file systems do not keep; the decision is the mount
table's, since a magic number of `statfs` does not tell a local FUSE file system from sshfs.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from redbox.jobs.errors import JournalInUse, JournalMisplaced

NETWORK = frozenset({
    "9p", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "coda", "gfs", "gfs2",
    "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs",
    "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
})  # fmt: skip
LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs"})  # a local disk behind a program


def unescaped(field: str) -> str:
    """A path as mountinfo writes it: blanks and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def file_system_type(path: str, mountinfo: bytes) -> str:
    """The type of the file system of an absolute, resolved path; the last mount over a point counts.

    Users choose names of mount points (fusermount), in which only blanks, tabs and line feeds are escaped.
    """
    best, kind = "", "unknown"
    for line in filter(None, os.fsdecode(mountinfo).split("\n")):
        before, _, after = line.partition(" - ")
        point = unescaped(before.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind


def is_network(kind: str) -> bool:
    """Whether a file system of this type is, or may be, on another host."""
    return kind in NETWORK or (kind.startswith("fuse") and kind not in LOCAL_FUSE)


def refuse_network(directory: Path) -> None:
    """Raise unless the directory is on a disk of this host."""
    kind = file_system_type(str(directory.resolve()), Path("/proc/self/mountinfo").read_bytes())
    if is_network(kind):
        raise JournalMisplaced(
            f"The journal's directory {directory} is on a network file system ({kind}), which does not keep "
            "what a journal promises. Set jobs.journal to a directory on a local disk (/var/lib/redbox)."
        )


class JournalLock:
    """The right to write a journal; the kernel gives it back when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(self._descriptor, 64).decode("ascii", "replace").strip() or "unknown"
            os.close(self._descriptor)
            raise JournalInUse(
                f"Another red-box (process {holder}) has the journal of {path.parent} open. One journal "
                "serves one server: stop that one first, or give this one its own jobs.journal."
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
