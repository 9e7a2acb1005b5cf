"""Secrets in files: whether one is this account's alone, by its mode, and how one is replaced.

A pod's Secret belongs to root, and to the group of the pod (fsGroup), which no other account has: mode 0440
is as private there as 0400 is on a host. On a host, where the file is red-box's own, its group may be that of
all users.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

OTHERS = 0o077
GROUP_READS = 0o040


def is_private(status: os.stat_result) -> bool:
    """Whether its owner alone can read it, or, of another owner's file, at most this process's own group."""
    of_own_group = GROUP_READS if is_handed_in(status) else 0
    return not stat.S_IMODE(status.st_mode) & OTHERS & ~of_own_group


def is_handed_in(status: os.stat_result) -> bool:
    """Whether another owner gave it to this process's group, as a kubelet does."""
    return status.st_uid != os.geteuid() and status.st_gid == os.getegid()


def replace_file(
    path: Path,
    content: bytes,
    *,
    mode: int = 0o600,
    owner: tuple[int, int] | None = None,
    check: Callable[[Path], None] | None = None,
) -> None:
    """Whole or not at all, also if the host loses power; an error of `check` leaves the old file."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(new, flags, 0o600), "wb") as opened:
        if owner is not None:
            os.fchown(opened.fileno(), *owner)
        os.fchmod(opened.fileno(), mode)
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    try:
        if check is not None:
            check(new)
    except Exception:
        new.unlink()
        raise
    new.replace(path)
