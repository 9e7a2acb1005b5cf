"""The folder of a volume on disk: its path, and how the user's agent makes and deletes it.

A folder is deleted only if it is still the one that was made, by its inode: a symbolic link or another folder
in its place is left alone. The device is not compared, because that of a network file system changes with
each mount.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from redbox.agents.agent import AgentClient
from redbox.agents.errors import SystemCallFailed
from redbox.core.domain import Owner, UnixUser
from redbox.jobs.store.volume_rows import VolumeRecord
from redbox.volumes.errors import VolumeConflict, VolumeForbidden, VolumeFull, VolumeUnavailable

PRIVATE, SHARED_BY_GROUP = 0o700, 0o2770
LONGEST_CLAIM = 100  # of a claim's name in the folder's, which has 255 bytes
FULL_RETRY_S = 60.0
IN_USE_RETRY_S = 30.0
CHANGED_MEANWHILE = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY})  # NFS keeps open files as .nfs...
REMOVAL_S = 3600.0


def user_directory(template: str, user: UnixUser, home: str) -> str:
    """The administrator's template, for this user."""
    return template.replace("{user}", user.name).replace("{home}", home.rstrip("/")).rstrip("/")


def folder_name(owner: Owner, claim: str, handle: str) -> str:
    """A name that a person recognizes and no other volume has."""
    return f"{owner.namespace}-{claim[:LONGEST_CLAIM]}-{handle}"


async def make_folder(agent: AgentClient, record: VolumeRecord, *, group_shared: bool) -> int:
    """Make it unless it exists; returns its inode."""
    with _explained(record):
        mode = SHARED_BY_GROUP if group_shared else PRIVATE
        found = await agent.make_own_directory(record.path, mode=mode)
    if found.uid != record.user.uid:
        raise VolumeConflict(f"{record.path} exists and does not belong to {record.user.name}: remove it.")
    return found.inode


async def remove_folder(agent: AgentClient, record: VolumeRecord) -> None:
    """Remove it with all files in it; no error if it is gone. One that was never confirmed must be empty."""
    with _explained(record):
        try:
            if record.inode is None:
                await agent.remove(record.path)
            else:
                await agent.remove_own_directory(record.path, inode=record.inode, deadline=REMOVAL_S)
        except SystemCallFailed as fault:
            if fault.errno == errno.ENOENT and fault.path == record.path:
                return
            if record.inode is not None and fault.errno in CHANGED_MEANWHILE:
                raise VolumeUnavailable(
                    f"{record.path}: {fault.strerror}: a program still uses it. Retry.",
                    retry_after=IN_USE_RETRY_S,
                ) from fault
            raise


@contextmanager
def _explained(record: VolumeRecord) -> Iterator[None]:
    """The kernel's error in words, where there is something to do about it."""
    path, user = record.path, record.user.name
    try:
        yield
    except SystemCallFailed as fault:
        where = fault.path or path
        match fault.errno:
            case errno.EDQUOT:
                raise VolumeFull(
                    f"{where}: {user}'s quota on this file system is used up: delete files there, or ask its "
                    "administrator for more.",
                    retry_after=FULL_RETRY_S,
                ) from fault
            case errno.ENOSPC:
                detail = f"{where}: the file system is full (no space or no inodes left)."
                raise VolumeFull(detail, retry_after=FULL_RETRY_S) from fault
            case errno.ENOTDIR | errno.EEXIST:
                raise VolumeConflict(f"{where} is not a folder: remove it.") from fault
            case errno.ESTALE | errno.ENOTEMPTY:
                raise VolumeConflict(
                    f"{path} is not the folder that red-box made (it was moved, or a link or another folder "
                    "is in its place): nothing was deleted. Move it away, and the deletion goes on."
                ) from fault
            case errno.EACCES | errno.EPERM | errno.EROFS:
                raise VolumeForbidden(
                    f"{where}: {fault.strerror}, as user {user}: volumes.directory of red-box's settings "
                    "must be a place where each user may make and delete folders."
                ) from fault
        raise
